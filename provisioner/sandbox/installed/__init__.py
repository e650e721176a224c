"""The product as users install it: the image and the chart, as pods on real nodes."""
