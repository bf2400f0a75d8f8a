"""Who answers: model names, the text that is routed, sessions, and the decision itself."""
