package admission

import (
	"context"
	"fmt"
	"slices"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	admissionclient "k8s.io/client-go/kubernetes/typed/admissionregistration/v1"
	"k8s.io/client-go/rest"

	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/permission"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// DriverPolicy reads whether the policy of a role is in force for a driver; its methods are safe for concurrent use.
type DriverPolicy struct {
	permission.Checker
	admission admissionclient.AdmissionregistrationV1Interface
	driver    string
	role      volume.Role
}

// NewDriverPolicy returns a DriverPolicy in the cluster of config, which is copied, where role is RoleOwner or
// RoleCompanion.
func NewDriverPolicy(config *rest.Config, driver string, role volume.Role) (*DriverPolicy, error) {
	clients, err := kube.NewClients(config)
	if err != nil {
		return nil, err
	}
	return &DriverPolicy{permission.NewChecker(clients.Authorization, driverPolicyPermissions(role)), clients.Admission,
		driver, role}, nil
}

// Since returns the time since when policy and binding have been unchanged, by the API server's clock and to the
// second. found is false if one of them is missing, or if the policy does not list the driver. Since is meant for
// [reclaim.Config.AdmissionPolicy].
func (p *DriverPolicy) Since(ctx context.Context) (since time.Time, found bool, _ error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	name := policyName(p.role)
	policy, err := p.admission.MutatingAdmissionPolicies().Get(ctx, name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return time.Time{}, false, fmt.Errorf("read mutatingadmissionpolicy/%s: %w", name, err)
	}
	binding, missing := p.admission.MutatingAdmissionPolicyBindings().Get(ctx, name, metav1.GetOptions{})
	switch {
	case err != nil, apierrors.IsNotFound(missing):
		return time.Time{}, false, nil
	case missing != nil:
		return time.Time{}, false, fmt.Errorf("read mutatingadmissionpolicybinding/%s: %w", name, missing)
	}
	drivers, err := driversIn(policy.Spec.MatchConditions)
	if err != nil {
		return time.Time{}, false, fmt.Errorf("read the drivers of mutatingadmissionpolicy/%s: %w", name, err)
	}
	since = lastChange(&policy.ObjectMeta)
	if bound := lastChange(&binding.ObjectMeta); bound.After(since) {
		since = bound
	}
	return since, slices.Contains(drivers, p.driver), nil
}

// lastChange returns the time at which an object was created or last written.
func lastChange(o *metav1.ObjectMeta) time.Time {
	last := o.CreationTimestamp.Time
	for _, f := range o.ManagedFields {
		if f.Time != nil && f.Time.After(last) {
			last = f.Time.Time
		}
	}
	return last
}

// driverPolicyPermissions returns the permissions that a DriverPolicy needs.
func driverPolicyPermissions(role volume.Role) (needed []permission.Permission) {
	for _, resource := range []string{"mutatingadmissionpolicies", "mutatingadmissionpolicybindings"} {
		needed = append(needed, permission.Permission{
			Group: admissionv1.GroupName, Resource: resource, Verb: "get", Name: policyName(role),
			Without: "PVs that are bound without the finalizer although an admission policy should have added it are not " +
				"noticed",
		})
	}
	return needed
}
