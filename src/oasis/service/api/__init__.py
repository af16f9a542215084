"""The operations of the service and their wire format."""
