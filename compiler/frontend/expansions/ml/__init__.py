"""Operators of ai.onnx.ml on numbers, each as an Expansion over ai.onnx: scaling, linear models, trees, SVMs."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from compiler.frontend.expansions.ml import features, labels, linear, svm, trees
from compiler.frontend.expansions.site import Site
from compiler.frontend.reading.model import Expansion

DOMAIN = "ai.onnx.ml"

ML: Mapping[str, Callable[[Site], Expansion]] = {
    "ArrayFeatureExtractor": features.extractor,
    "Binarizer": features.binarizer,
    "CategoryMapper": labels.mapper,
    "FeatureVectorizer": features.vectorizer,
    "Imputer": features.imputer,
    "LabelEncoder": labels.encoder,
    "LinearClassifier": linear.classifier,
    "LinearRegressor": linear.regressor,
    "Normalizer": features.normalizer,
    "OneHotEncoder": labels.one_hot,
    "SVMClassifier": svm.classifier,
    "SVMRegressor": svm.regressor,
    "Scaler": features.scaler,
    "TreeEnsemble": trees.ensemble,
    "TreeEnsembleClassifier": trees.classifier,
    "TreeEnsembleRegressor": trees.regressor,
}

_MAPS = ("it reads a map, which no program takes", "make the row of numbers on the host, and feed that")

REFUSED: Mapping[str, tuple[str, str]] = {"CastMap": _MAPS, "DictVectorizer": _MAPS}
"""Operators that are refused, each with the reason and what to do instead."""
