"""Where Penstock answers otherwise than Apache Kafka, and why. An entry that no answer needs any more is a failure."""

from tests.support.differential import Known

KNOWN: list[Known] = []
