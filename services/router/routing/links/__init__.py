"""The router's ends of links that carry an address's deliveries."""
