"""Visual dialog (Lu et al. 2017): generators that answer questions about an image, and discriminators of answers."""
