"""Programs that other people wrote, unchanged on the device. `make test-all` installs them (extra `integrations`)."""
