"""The parts of the page, each from its piece of the document."""
