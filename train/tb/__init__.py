"""TensorBoard's event files: rename tags, cut what a rollback has made untrue, merge folders."""
