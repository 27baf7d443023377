package reclaim

import (
	"errors"
	"fmt"
	"strings"
)

// errSecretUnclear: the Secret that a deletion needs cannot be told from what is there.
var errSecretUnclear = errors.New("which Secret the deletion needs cannot be told")

// Parameters of a StorageClass that name the Secret (kubernetes-csi docs, "StorageClass
// Secrets"); the second of each is deprecated and still in use.
func secretNameParameters() [2]string {
	return [2]string{"csi.storage.k8s.io/provisioner-secret-name", "csiProvisionerSecretName"}
}

func secretNamespaceParameters() [2]string {
	return [2]string{"csi.storage.k8s.io/provisioner-secret-namespace", "csiProvisionerSecretNamespace"}
}

// secretOf returns the Secret that a PV's annotations name, the zero value for none.
func secretOf(pv PV) (SecretRef, error) {
	ref := pv.DeletionSecret
	if (ref.Name == "") != (ref.Namespace == "") {
		return SecretRef{}, fmt.Errorf("%w: of the annotations %s=%q and %s=%q one is empty", errSecretUnclear,
			annSecretName, ref.Name, annSecretNamespace, ref.Namespace)
	}
	return ref, nil
}

// secretOfClass returns the Secret that a StorageClass names for a PV, the zero value for
// none. The claim is gone, so only its name is known: a template that asks for one of its
// annotations cannot be resolved.
func secretOfClass(pv PV, parameters map[string]string) (SecretRef, error) {
	name, namespace := first(parameters, secretNameParameters()), first(parameters, secretNamespaceParameters())
	if name == "" && namespace == "" {
		return SecretRef{}, nil
	}
	if name == "" || namespace == "" {
		return SecretRef{}, fmt.Errorf("%w: StorageClass %q names a Secret without its name or namespace", errSecretUnclear, pv.StorageClass)
	}
	var ref SecretRef
	var err error
	if ref.Namespace, err = resolve(namespace, map[string]string{"pv.name": pv.Name, "pvc.namespace": pv.Claim.Namespace}); err != nil {
		return SecretRef{}, fmt.Errorf("namespace of the Secret in StorageClass %q: %w", pv.StorageClass, err)
	}
	if ref.Name, err = resolve(name, map[string]string{"pv.name": pv.Name, "pvc.namespace": pv.Claim.Namespace, "pvc.name": pv.Claim.Name}); err != nil {
		return SecretRef{}, fmt.Errorf("name of the Secret in StorageClass %q: %w", pv.StorageClass, err)
	}
	return ref, nil
}

func first(parameters map[string]string, keys [2]string) string {
	for _, key := range keys {
		if value, found := parameters[key]; found {
			return value
		}
	}
	return ""
}

// resolve replaces each ${token} of a template; a token that is not known is an error.
func resolve(template string, values map[string]string) (string, error) {
	var out strings.Builder
	rest := template
	for {
		before, after, found := strings.Cut(rest, "${")
		out.WriteString(before)
		if !found {
			return out.String(), nil
		}
		token, behind, closed := strings.Cut(after, "}")
		value, known := values[token]
		if !closed || !known {
			return "", fmt.Errorf("%w: ${%s} in %q has no value now that the claim is gone; put the annotations %s and %s on the PV",
				errSecretUnclear, token, template, annSecretName, annSecretNamespace)
		}
		out.WriteString(value)
		rest = behind
	}
}
