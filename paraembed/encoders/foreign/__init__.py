"""Encoders of other libraries, computed by these libraries: ``st:``, ``m2v:``, ``onnx:``."""
