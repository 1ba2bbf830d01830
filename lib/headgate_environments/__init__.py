"""The environments that come with Headgate, and adapters to collections; found by entry points, as anybody's are."""
