"""Other people's test suites on the device: ``python -m tests.tools.clients`` (or ``make clients``)."""
