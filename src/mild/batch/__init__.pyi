"""Routing of data sets, each name once."""

from mild.batch.routing import RoutedDataset as RoutedDataset
from mild.batch.routing import route_dataset as route_dataset
