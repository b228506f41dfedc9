"""What only SQLite needs: connections and their thread, its errors, its full-text index."""
