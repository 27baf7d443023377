package request

import (
	"k8s.io/api/core/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/secretref"
)

// secretKeys returns the parameters that name Secrets. The value is false for deprecated spellings, which are passed to
// the driver.
func secretKeys() map[string]bool {
	keys := map[string]bool{}
	for _, k := range []secretref.Keys{
		secretref.Default(), secretref.Provisioner(), secretref.ControllerPublish(), secretref.NodeStage(),
		secretref.NodePublish(),
		secretref.ControllerExpand(), secretref.NodeExpand(), secretref.ControllerModify(),
	} {
		for _, spellings := range [][]string{k.Name, k.Namespace} {
			for i, key := range spellings {
				keys[key] = i == 0
			}
		}
	}
	return keys
}

// secrets are the Secrets for the calls about one volume, nil for none.
type secrets struct {
	provisioner, controllerPublish, nodeStage, nodePublish, controllerExpand, nodeExpand,
	controllerModify *v1.SecretReference
}

// secrets returns the Secrets that the class names for this volume, whether or not they exist.
func (f Facts) secrets(pv string) (secrets, error) {
	var s secrets
	for _, one := range []struct {
		keys secretref.Keys
		into **v1.SecretReference
	}{
		{secretref.Provisioner(), &s.provisioner},
		{secretref.ControllerPublish(), &s.controllerPublish},
		{secretref.NodeStage(), &s.nodeStage},
		{secretref.NodePublish(), &s.nodePublish},
		{secretref.ControllerExpand(), &s.controllerExpand},
		{secretref.NodeExpand(), &s.nodeExpand},
		{secretref.ControllerModify(), &s.controllerModify},
	} {
		template, err := secretref.Find(f.Class.Parameters, one.keys, secretref.Default())
		if err != nil {
			return secrets{}, refuse(ReasonSecretUnclear, "StorageClass %q: %w; correct it in a new one", f.Class.Name, err)
		}
		if template == (secretref.Template{}) {
			continue
		}
		ref := &v1.SecretReference{}
		ref.Namespace, ref.Name, err = template.For(secretref.Volume{
			PV: pv, ClaimNamespace: f.Claim.Namespace, ClaimName: f.Claim.Name, ClaimAnnotations: f.Claim.Annotations,
		})
		if err != nil {
			return secrets{}, refuse(ReasonSecretUnclear,
				"Secret of StorageClass %q under %s, for claim %q: %w; correct the claim's annotations, or the parameter in a "+
					"new class",
				f.Class.Name, one.keys.Name[0], f.claimName(), err)
		}
		*one.into = ref
	}
	return s, nil
}
