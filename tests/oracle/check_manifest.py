"""Holds the documents of a manifest against the schemas that Kubernetes, Kubeflow and JobSet publish.

    check_manifest.py FILE.yaml [FOLDER]

Without FOLDER the schemas are those of Python packages: kubernetes-validate has the Kubernetes
API's, strict ones that know every field, kubeflow-training the fields of a PyTorchJob and
kubeflow-trainer-api those of a JobSet, each made from the OpenAPI description of its project. With
FOLDER they are the CustomResourceDefinitions that scripts/kubernetes_schemas.sh fetches into it.
Prints a line for each document; exit code 1 when one does not fit, or there is none.
"""

import importlib.resources
import json
import pathlib
import re
import sys

import jsonschema
import referencing
import yaml
from referencing.jsonschema import DRAFT202012

KUBERNETES = "v1.34.0-local-strict"


def strict(schema):
    """The same schema, refusing fields that it does not name, as kubectl apply does."""
    if isinstance(schema, list):
        return [strict(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    result = {key: strict(part) for key, part in schema.items()}
    fields = isinstance(result.get("properties"), dict) and "type" not in result["properties"]
    fields = fields or result.get("type") == "object" and "properties" in result
    if fields and not result.get("x-kubernetes-preserve-unknown-fields"):
        result.setdefault("additionalProperties", False)
    return result


def kubernetes_file(name):
    folder = importlib.resources.files("kubernetes_validate") / "kubernetes-json-schema"
    return json.loads((folder / KUBERNETES / name).read_text())


def kubernetes(name):
    return {"$ref": f"/api/_definitions.json#/$defs/io.k8s.{name}"}


def of_kubeflow(kind):
    """A class of kubeflow-training, or one of its names for a type, as a schema."""
    from kubeflow.training import models

    plain = {"str": "string", "int": "integer", "bool": "boolean", "float": "number"}
    if kind in plain:
        return {"type": plain[kind]}
    if inner := re.fullmatch(r"list\[(.*)\]", kind):
        return {"type": "array", "items": of_kubeflow(inner[1])}
    if inner := re.fullmatch(r"dict\(str, (.*)\)", kind):
        return {"type": "object", "additionalProperties": of_kubeflow(inner[1])}
    if kind == "V1PodTemplateSpec":
        return kubernetes("api.core.v1.PodTemplateSpec")
    if kind == "V1ObjectMeta":
        return kubernetes("apimachinery.pkg.apis.meta.v1.ObjectMeta")
    model = getattr(models, kind, None)
    if model is None:
        return {}
    properties = {model.attribute_map[field]: of_kubeflow(held)
                  for field, held in model.openapi_types.items()}
    return {"type": "object", "properties": properties, "additionalProperties": False}


def pytorch_job():
    schema = of_kubeflow("KubeflowOrgV1PyTorchJob")
    schema["properties"]["spec"]["required"] = ["pytorchReplicaSpecs"]
    return schema


def job_set():
    from kubeflow_trainer_api import models

    schema = strict(models.JobsetV1alpha2JobSet.model_json_schema(by_alias=True))
    schema["$defs"]["IoK8sApiBatchV1JobTemplateSpec"] = kubernetes("api.batch.v1.JobTemplateSpec")
    return schema


def of_packages(document):
    schema = known(document, {"kubeflow.org/v1 PyTorchJob": pytorch_job,
                              "jobset.x-k8s.io/v1alpha2 JobSet": job_set})()
    definitions = DRAFT202012.create_resource(kubernetes_file("_definitions.json"))
    registry = referencing.Registry().with_resource("/api/_definitions.json", definitions)
    return jsonschema.Draft202012Validator(
        schema | {"required": ["apiVersion", "kind", "metadata", "spec"]}, registry=registry)


def of_definitions(folder):
    """The schema of a document among the CustomResourceDefinitions of a folder."""
    schemas = {}
    for path in pathlib.Path(folder).glob("*.yaml"):
        definition = yaml.load(path.read_text(), Loader=yaml.CSafeLoader)["spec"]
        for version in definition["versions"]:
            kind = f"{definition['group']}/{version['name']} {definition['names']['kind']}"
            schemas[kind] = strict(version["schema"]["openAPIV3Schema"])
            schemas[kind]["properties"]["metadata"] = {"type": "object"}
    return lambda document: jsonschema.Draft202012Validator(known(document, schemas))


def kind_of(document):
    return f"{document['apiVersion']} {document['kind']}"


def known(document, schemas):
    if kind_of(document) not in schemas:
        raise jsonschema.ValidationError(f"no schema for {kind_of(document)}")
    return schemas[kind_of(document)]


def reasons(error):
    """Where a schema has alternatives, those of each one but of null."""
    if error.context:
        return [reason for part in error.context for reason in reasons(part)]
    if error.validator == "type" and error.validator_value == "null":
        return []
    return [f"{error.json_path}: {error.message}"]


def problems_of(document, validator_of):
    try:
        errors = list(validator_of(document).iter_errors(document))
    except jsonschema.ValidationError as error:
        errors = [error]
    print(f"{kind_of(document)} {document['metadata']['name']}: {len(errors)} errors")
    return [reason for error in errors for reason in reasons(error)]


def main(file, folder=None):
    validator_of = of_definitions(folder) if folder else of_packages
    documents = list(yaml.safe_load_all(pathlib.Path(file).read_text()))
    problems = [] if documents else [f"{file} holds no document"]
    for document in documents:
        problems += problems_of(document, validator_of)
    print("\n".join(problems))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
