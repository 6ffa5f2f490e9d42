"""What only the container image needs: its list of components and its health check."""
