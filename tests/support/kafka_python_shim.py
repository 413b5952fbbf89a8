"""A pytest plugin for kafka-python's own tests: what their source distribution leaves out, and where the broker is.

The tests import `test`, a name that Python's standard library has too, and `test.service`, which starts brokers and is not
distributed; an outside broker (`KAFKA_URI`) needs none of it.
"""

import os
import sys
import types


class ExternalService:
    """A broker that somebody else started and will stop."""

    def __init__(self, host: str, port: int) -> None:
        self.host, self.port = host, port

    def open(self) -> None:
        pass

    def stop(self) -> None:
        pass


package = types.ModuleType("test")
package.__path__ = [os.path.join(os.environ["KAFKA_ROOT"], "test")]
sys.modules["test"] = package
service = types.ModuleType("test.service")
service.__dict__.update(ExternalService=ExternalService, SpawnedService=object)
sys.modules["test.service"] = service
