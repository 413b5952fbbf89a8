"""`python -m tests.simulation FIRST COUNT`: runs clusters by seed, says of the first that fails what happened to it."""

import logging
import sys

from tests.simulation.cluster import SimCluster


def main(first: int, count: int) -> int:
    logging.disable(logging.CRITICAL)
    for seed in range(first, first + count):
        cluster = SimCluster.of(seed)
        try:
            cluster.run()
        except BaseException:
            print("\n".join(cluster.events.trace))
            print(f"seed {seed} fails; the same again: python -m tests.simulation {seed} 1")
            raise
        if (seed - first + 1) % 100 == 0:
            print(f"{seed - first + 1} clusters held", flush=True)
    print(f"all of {count} clusters held what they must")
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
