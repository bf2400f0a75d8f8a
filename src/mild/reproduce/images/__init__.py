"""The image router: a ResNet-18, the paper's training protocol and a short one."""
