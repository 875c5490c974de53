"""Devices by name, copies to them, and the dtype of products."""

import pytest
import torch

from elmo.errors import ConfigError
from elmo.model.device import device_named, product_dtype, to_device, without_autocast


def test_auto_is_the_first_gpu_or_the_cpu() -> None:
    assert device_named("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")
    assert device_named("cpu") == torch.device("cpu")


@pytest.mark.parametrize("name", ["gpu", "cuda:99", "meta", "", "cpu:x"])
def test_a_device_that_does_not_exist_is_one_line_with_those_that_do(name: str) -> None:
    with pytest.raises(ConfigError, match=rf"^device '{name}' is not available; on this machine: auto, cpu"):
        device_named(name)


def test_a_copy_has_the_same_values() -> None:
    tensor = torch.arange(6).view(2, 3).t()
    assert torch.equal(to_device(tensor, torch.device("cpu")), tensor)


def test_products_have_autocast_s_dtype_where_it_is_on() -> None:
    tensor = torch.zeros(2, 2)
    assert product_dtype(tensor) == torch.float32
    with torch.autocast("cpu", torch.bfloat16):
        assert product_dtype(tensor) == torch.bfloat16
        assert (tensor @ tensor).dtype == torch.bfloat16
        with without_autocast(tensor):
            assert product_dtype(tensor) == torch.float32
            assert (tensor @ tensor).dtype == torch.float32
        assert product_dtype(tensor) == torch.bfloat16
