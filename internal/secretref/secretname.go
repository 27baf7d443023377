// Package secretref determines the Secret that a StorageClass names for a call to the driver (kubernetes-csi docs,
// "StorageClass Secrets"). The provisioner and the reclaimer both use it, so that they choose the same Secret.
//
// It reads no Secret, and does not know whether the Secret exists.
package secretref

import (
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// ErrUnclear is wrapped by all errors of this package, and means that the Secret is unknown.
var ErrUnclear = errors.New("it is unclear which Secret is meant")

// prefix is the prefix of the parameters for sidecars (external-provisioner's csiParameterPrefix).
const prefix = "csi.storage.k8s.io/"

// Keys are the parameters that name one Secret. Each list has the spellings of one parameter over time, beginning with
// the present one.
type Keys struct {
	Name, Namespace []string
}

// The Secrets that a StorageClass can name. Keys that begin with "csi" and have no prefix are deprecated, and still in
// use.

// Default returns the keys of the Secret for all calls without their own Secret.
func Default() Keys { return today("secret") }

// Provisioner returns the keys of the Secret for CreateVolume and DeleteVolume.
func Provisioner() Keys { return ofOld("provisioner-secret", "csiProvisionerSecret") }

// ControllerPublish returns the keys of the Secret for ControllerPublishVolume.
func ControllerPublish() Keys {
	return ofOld("controller-publish-secret", "csiControllerPublishSecret")
}

// NodeStage returns the keys of the Secret for NodeStageVolume.
func NodeStage() Keys { return ofOld("node-stage-secret", "csiNodeStageSecret") }

// NodePublish returns the keys of the Secret for NodePublishVolume.
func NodePublish() Keys { return ofOld("node-publish-secret", "csiNodePublishSecret") }

// ControllerExpand returns the keys of the Secret for ControllerExpandVolume.
func ControllerExpand() Keys { return today("controller-expand-secret") }

// NodeExpand returns the keys of the Secret for NodeExpandVolume.
func NodeExpand() Keys { return today("node-expand-secret") }

// ControllerModify returns the keys of the Secret for ControllerModifyVolume (external-provisioner 6.2 and newer).
func ControllerModify() Keys { return today("controller-modify-secret") }

func today(secret string) Keys {
	return Keys{Name: []string{prefix + secret + "-name"}, Namespace: []string{prefix + secret + "-namespace"}}
}

func ofOld(secret, old string) Keys {
	k := today(secret)
	k.Name, k.Namespace = append(k.Name, old+"Name"), append(k.Namespace, old+"Namespace")
	return k
}

// Template is a Secret's name in a StorageClass, with ${tokens} for the parts that differ between volumes; the zero
// value names no Secret.
type Template struct {
	Name, Namespace string
}

// Find returns the template under the first of the keys for which the parameters have a value, and the zero value if
// they have none for any. An incomplete or empty name, or two spellings of one parameter, are an error, because the
// intended Secret is unknown.
func Find(parameters map[string]string, keys ...Keys) (Template, error) {
	for _, k := range keys {
		names, namespaces := given(parameters, k.Name), given(parameters, k.Namespace)
		switch {
		case len(names)+len(namespaces) == 0:
			continue
		case len(names) != 1 || len(namespaces) != 1 || names[0] == "" || namespaces[0] == "":
			return Template{}, fmt.Errorf("%w: it needs one name and one namespace, under %s and %s", ErrUnclear,
				k.Name[0], k.Namespace[0])
		}
		return Template{Name: names[0], Namespace: namespaces[0]}, nil
	}
	return Template{}, nil
}

// given returns the values of the existing keys, including empty ones.
func given(parameters map[string]string, keys []string) []string {
	var values []string
	for _, key := range keys {
		if value, found := parameters[key]; found {
			values = append(values, value)
		}
	}
	return values
}

// Volume holds the values of the tokens.
type Volume struct {
	// PV is the name of the PersistentVolume, ${pv.name}.
	PV string
	// ClaimNamespace and ClaimName are ${pvc.namespace} and ${pvc.name}.
	ClaimNamespace, ClaimName string
	// ClaimAnnotations are ${pvc.annotations['KEY']}, or nil if the claim is gone; then a template with such a token is an
	// error.
	ClaimAnnotations map[string]string
}

// For returns namespace and name of the Secret for a volume. A token without a value and an invalid name of a Secret
// are errors. The namespace accepts no token that the claim's owner can choose freely, so that no user reaches a Secret
// of another namespace through the name of a claim.
func (t Template) For(v Volume) (namespace, name string, err error) {
	values := map[string]string{"pv.name": v.PV, "pvc.namespace": v.ClaimNamespace}
	if namespace, err = resolve(t.Namespace, values); err != nil {
		return "", "", fmt.Errorf("namespace of the Secret: %w", err)
	}
	values["pvc.name"] = v.ClaimName
	for key, value := range v.ClaimAnnotations {
		values["pvc.annotations['"+key+"']"] = value
	}
	if name, err = resolve(t.Name, values); err != nil {
		return "", "", fmt.Errorf("name of the Secret: %w", err)
	}
	if err := Check(namespace, name); err != nil {
		return "", "", err
	}
	return namespace, name, nil
}

// Check returns an error if no Secret can have that name. The API server answers 404 for such a name, which would look
// like a deleted Secret. But this Secret never existed, and a driver that is called without it may look in the wrong
// place.
func Check(namespace, name string) error {
	switch {
	case len(validation.IsDNS1123Label(namespace)) > 0:
		return fmt.Errorf("%w: %q cannot be the name of a namespace", ErrUnclear, namespace)
	case len(validation.IsDNS1123Subdomain(name)) > 0:
		return fmt.Errorf("%w: %q cannot be the name of a Secret", ErrUnclear, name)
	}
	return nil
}

// resolve replaces each ${token} of a template; an unknown token is an error.
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
			return "", fmt.Errorf("%w: ${%s} in %q has no value", ErrUnclear, token, template)
		}
		out.WriteString(value)
		rest = behind
	}
}
