"""Other people's test suites on the device: ``python -m tests.clients`` (or ``make clients``)."""
