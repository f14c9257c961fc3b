"""What methods are made of: terms, turns, and what all methods of joint training share."""
