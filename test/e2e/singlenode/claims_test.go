//go:build unix

package singlenode

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
)

// claim creates a claim that is bound to a volume that is there, as an administrator's PVs for NFS are. change, which
// may be nil, alters the PV.
func (env *environment) claim(change ...func(*v1.PersistentVolume)) string {
	env.T.Helper()
	vol := env.MakeVolume(objects.Spec{Handle: "none-" + rand.String(8), Policy: v1.PersistentVolumeReclaimRetain,
		Change: func(pv *v1.PersistentVolume) {
			for _, change := range change {
				change(pv)
			}
		}})
	return vol.ClaimName
}

// provisioned creates a claim of a class, and waits for nothing.
func (env *environment) provisioned(class string, changes ...func(*v1.PersistentVolumeClaim)) *objects.Claim {
	env.T.Helper()
	return env.CreateClaim(class, func(spec *objects.ClaimSpec) {
		spec.Change = func(claim *v1.PersistentVolumeClaim) {
			for _, change := range changes {
				change(claim)
			}
		}
	})
}

// get returns a claim, or nil if it is gone.
func (env *environment) get(claim string) *v1.PersistentVolumeClaim {
	env.T.Helper()
	o, err := env.Client.CoreV1().PersistentVolumeClaims(env.Namespace).Get(env.Ctx, claim, metav1.GetOptions{})
	if ignoreNotFound(err) == nil && err != nil {
		return nil
	}
	env.Must(err)
	return o
}

// expectLocked checks that a pod has the lock of a claim.
func (env *environment) expectLocked(claim string, pod *objects.Pod) {
	env.T.Helper()
	o := env.get(claim)
	if want := string(pod.UID) + " " + pod.Name; o == nil || o.Annotations[lockAnnotation] != want || !isKept(o) {
		env.T.Errorf("claim %s is not locked for pod %q: %+v", claim, want, o)
	}
}

// expectFree checks that a claim has no lock.
func (env *environment) expectFree(claim string) {
	env.T.Helper()
	if o := env.get(claim); o == nil || isLocked(o) {
		env.T.Errorf("claim %s is locked, or gone: %+v", claim, o)
	}
}

func isLocked(claim *v1.PersistentVolumeClaim) bool {
	_, locked := claim.Annotations[lockAnnotation]
	return locked || isKept(claim)
}

// waitFree waits until a claim has no lock.
func (env *environment) waitFree(claim string) {
	env.T.Helper()
	env.Eventually("claim "+claim+" is free", func() bool { return !isLocked(env.get(claim)) })
}

// deleteClaim begins the deletion of a claim.
func (env *environment) deleteClaim(claim string) {
	env.T.Helper()
	env.Must(env.Client.CoreV1().PersistentVolumeClaims(env.Namespace).Delete(env.Ctx, claim, metav1.DeleteOptions{}))
}

func (env *environment) waitClaimGone(claim string) {
	env.T.Helper()
	env.Eventually("claim "+claim+" is gone", func() bool { return env.get(claim) == nil })
}

// patchClaim changes a claim by hand.
func (env *environment) patchClaim(claim, patch string) error {
	_, err := env.Client.CoreV1().PersistentVolumeClaims(env.Namespace).Patch(env.Ctx, claim, types.MergePatchType,
		[]byte(patch), metav1.PatchOptions{})
	return err
}

// forge writes a lock to a claim by hand, or removes it for "".
func (env *environment) forge(claim, lock string) error {
	value := "null"
	if lock != "" {
		value = fmt.Sprintf("%q", lock)
	}
	return env.patchClaim(claim, fmt.Sprintf(`{"metadata":{"annotations":{%q:%s}}}`, lockAnnotation, value))
}

// expectRefused checks that a policy of this name has refused a request.
func (env *environment) expectRefused(err error, policy string) {
	env.T.Helper()
	if err == nil || !strings.Contains(err.Error(), policy) {
		env.T.Errorf("policy %s has not refused the request: %v", policy, err)
	}
}

// waitClaimEvent waits until something was reported on a claim.
func (env *environment) waitClaimEvent(claim, reason string, texts ...string) {
	env.T.Helper()
	env.waitEvent(env.get(claim).UID, reason, texts...)
}
