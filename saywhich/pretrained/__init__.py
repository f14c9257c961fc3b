"""Pretrained captioners as speakers and pretrained dual encoders as listeners, without any training."""
