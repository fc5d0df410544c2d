"""ResNet of bottleneck blocks, the stride on the 3x3 convolution, with torchvision's names; resnet.h has the same."""

from torch import nn
from torch.nn import functional


def convolution(width_in, width_out, kernel, stride):
    return nn.Conv2d(width_in, width_out, kernel, stride, padding=kernel // 2, bias=False)


class Bottleneck(nn.Module):
    EXPANSION = 4

    def __init__(self, width_in, width, stride):
        super().__init__()
        width_out = self.EXPANSION * width
        self.conv1 = convolution(width_in, width, 1, 1)
        self.conv2 = convolution(width, width, 3, stride)
        self.conv3 = convolution(width, width_out, 1, 1)
        self.bn1 = nn.BatchNorm2d(width)
        self.bn2 = nn.BatchNorm2d(width)
        self.bn3 = nn.BatchNorm2d(width_out)
        self.downsample = None
        if stride != 1 or width_in != width_out:
            self.downsample = nn.Sequential(convolution(width_in, width_out, 1, stride), nn.BatchNorm2d(width_out))

    def forward(self, x):
        y = self.bn1(self.conv1(x)).relu_()
        y = self.bn2(self.conv2(y)).relu_()
        y = self.bn3(self.conv3(y))
        y += x if self.downsample is None else self.downsample(x)
        return y.relu_()


class ResNet(nn.Module):
    def __init__(self, blocks, width, classes):
        super().__init__()
        self.conv1 = convolution(3, width, 7, 2)
        self.bn1 = nn.BatchNorm2d(width)
        width_in = width
        for stage, count in enumerate(blocks):
            layer = []
            for block in range(count):
                layer.append(Bottleneck(width_in, width << stage, 2 if block == 0 and stage > 0 else 1))
                width_in = Bottleneck.EXPANSION * (width << stage)
            setattr(self, f"layer{stage + 1}", nn.Sequential(*layer))
        self.stages = len(blocks)
        self.fc = nn.Linear(width_in, classes)

    def forward(self, x):
        y = functional.max_pool2d(self.bn1(self.conv1(x)).relu_(), 3, 2, 1)
        for stage in range(self.stages):
            y = getattr(self, f"layer{stage + 1}")(y)
        return self.fc(functional.adaptive_avg_pool2d(y, 1).flatten(1))
