package reclaim

import (
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// errSecretUnclear: the Secret that a deletion needs cannot be told from what is there.
var errSecretUnclear = errors.New("which Secret the deletion needs cannot be told")

// secretParameters are the keys under which a StorageClass names one Secret.
type secretParameters struct {
	name, namespace []string
}

// classSecrets are the Secrets a StorageClass can name for a deletion (kubernetes-csi docs,
// "StorageClass Secrets"), the first that is named counts: that of the provisioner, with keys
// of old that are still in use, or that of all calls.
func classSecrets() []secretParameters {
	return []secretParameters{
		{
			name:      []string{"csi.storage.k8s.io/provisioner-secret-name", "csiProvisionerSecretName"},
			namespace: []string{"csi.storage.k8s.io/provisioner-secret-namespace", "csiProvisionerSecretNamespace"},
		},
		{
			name:      []string{"csi.storage.k8s.io/secret-name"},
			namespace: []string{"csi.storage.k8s.io/secret-namespace"},
		},
	}
}

// secretOf returns the Secret that a PV's annotations name, the zero value for none.
func secretOf(pv PV) (SecretRef, error) {
	ref := pv.DeletionSecret
	if ref == (SecretRef{}) {
		return ref, nil
	}
	if ref.Name == "" || ref.Namespace == "" {
		return SecretRef{}, fmt.Errorf("%w: of the annotations %s=%q and %s=%q one is empty", errSecretUnclear,
			annSecretName, ref.Name, annSecretNamespace, ref.Namespace)
	}
	if err := ref.check(); err != nil {
		return SecretRef{}, fmt.Errorf("annotations %s and %s: %w", annSecretName, annSecretNamespace, err)
	}
	return ref, nil
}

// secretOfClass returns the Secret that a StorageClass names for a PV, the zero value for
// none. The claim is gone, so only its name is known: a template that asks for one of its
// annotations cannot be resolved. The rules are those of external-provisioner
// (getSecretReference), with which the volume was made.
func secretOfClass(pv PV, parameters map[string]string) (SecretRef, error) {
	for _, keys := range classSecrets() {
		names, namespaces := given(parameters, keys.name), given(parameters, keys.namespace)
		switch {
		case len(names)+len(namespaces) == 0:
			continue
		case len(names) != 1 || len(namespaces) != 1 || names[0] == "" || namespaces[0] == "":
			return SecretRef{}, fmt.Errorf("%w: StorageClass %q does not name the Secret by one name and one namespace, under %s and %s",
				errSecretUnclear, pv.StorageClass, keys.name[0], keys.namespace[0])
		}
		return secretByTemplates(pv, names[0], namespaces[0])
	}
	return SecretRef{}, nil
}

func secretByTemplates(pv PV, name, namespace string) (ref SecretRef, err error) {
	if ref.Namespace, err = resolve(namespace, map[string]string{"pv.name": pv.Name, "pvc.namespace": pv.Claim.Namespace}); err != nil {
		return SecretRef{}, fmt.Errorf("namespace of the Secret in StorageClass %q: %w", pv.StorageClass, err)
	}
	if ref.Name, err = resolve(name, map[string]string{"pv.name": pv.Name, "pvc.namespace": pv.Claim.Namespace, "pvc.name": pv.Claim.Name}); err != nil {
		return SecretRef{}, fmt.Errorf("name of the Secret in StorageClass %q: %w", pv.StorageClass, err)
	}
	if err := ref.check(); err != nil {
		return SecretRef{}, fmt.Errorf("secret in StorageClass %q: %w", pv.StorageClass, err)
	}
	return ref, nil
}

// check tells whether there can be a Secret of that name. The API server answers 404 for one
// that there cannot be, which would look like a Secret that was deleted; but this one was
// never there, and a driver that is asked without it may look in the wrong place.
func (ref SecretRef) check() error {
	switch {
	case len(validation.IsDNS1123Label(ref.Namespace)) > 0:
		return fmt.Errorf("%w: %q cannot be the name of a namespace", errSecretUnclear, ref.Namespace)
	case len(validation.IsDNS1123Subdomain(ref.Name)) > 0:
		return fmt.Errorf("%w: %q cannot be the name of a Secret", errSecretUnclear, ref.Name)
	}
	return nil
}

// given returns the values of the keys that are there, empty ones too.
func given(parameters map[string]string, keys []string) []string {
	var values []string
	for _, key := range keys {
		if value, found := parameters[key]; found {
			values = append(values, value)
		}
	}
	return values
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
