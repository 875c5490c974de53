"""OTHER PEOPLE'S INTERFACES: models in the formats of other libraries. Each file needs an extra of its name."""
