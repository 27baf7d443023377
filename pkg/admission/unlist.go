package admission

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	admissionclient "k8s.io/client-go/kubernetes/typed/admissionregistration/v1"
	"k8s.io/client-go/rest"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// releasedAnnotation on a policy or a webhook configuration is the drivers that were removed from it, separated by
// commas, so that a release of AllDrivers goes on with what an interrupted one began.
const releasedAnnotation = "csi-reclaimer.io/released-drivers"

// ErrStillListed: a driver is listed, and it could not be removed from the list.
var ErrStillListed = errors.New("still listed")

// Unlisted is what Unlist did.
type Unlisted struct {
	// Drivers are those that were asked for and, for AllDrivers, all that were listed: no list has them any more.
	Drivers []string
	// From are the objects that listed any of them before, as "mutatingadmissionpolicy/NAME".
	From []string
}

// Unlist removes drivers from the lists of all policies and webhooks that add csi-reclaimer's finalizers in the
// write that binds a PV, and leaves the rest of them as it is. drivers are their names, or AllDrivers. API servers
// learn of it some time later: see [AwaitUnlisted]. It needs get of the policies [PolicyName] and
// [CompanionPolicyName] and of the MutatingWebhookConfiguration [WebhooksName], and patch of those that list a driver. One that
// is missing lists nothing. A list that csi-reclaimer did not write is an error, and is not changed; ErrStillListed is one of
// a list that could not be written.
func Unlist(ctx context.Context, config *rest.Config, drivers []string) (Unlisted, error) {
	admission, err := admissionclient.NewForConfig(config)
	if err != nil {
		return Unlisted{}, fmt.Errorf("make a client for admissionregistration.k8s.io/v1: %w", err)
	}
	return lists{admission, callTimeout}.unlist(ctx, drivers)
}

// lists are the objects that list drivers.
type lists struct {
	admission admissionclient.AdmissionregistrationV1Interface
	// timeout bounds one call.
	timeout time.Duration
}

// list is one object that lists drivers.
type list struct {
	kind string
	metav1.ObjectMeta
	// parts are its lists: a policy has one, a webhook configuration one for each role.
	parts []part
	// bound is the name of the binding that puts it in force, empty where it needs none.
	bound string
	patch func(ctx context.Context, body []byte) error
}

// part is a list of drivers. webhook is the name of the webhook that has it, empty in a policy.
type part struct {
	webhook string
	drivers []string
}

func (l list) String() string { return l.kind + "/" + l.Name }

// lists tells whether any part has one of the drivers.
func (l list) lists(drivers []string) bool {
	return slices.ContainsFunc(l.parts, func(p part) bool {
		return slices.ContainsFunc(p.drivers, func(d string) bool { return slices.Contains(drivers, d) })
	})
}

func (c lists) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, c.timeout)
}

func (c lists) unlist(ctx context.Context, asked []string) (Unlisted, error) {
	all, err := c.read(ctx)
	if err != nil {
		return Unlisted{}, err
	}
	out := Unlisted{Drivers: unlisted(all, asked)}
	for len(all) > 0 {
		if !all[0].lists(out.Drivers) {
			all = all[1:]
			continue
		}
		switch err := c.write(ctx, all[0], out.Drivers); {
		case apierrors.IsConflict(err): // somebody else changed it meanwhile
			if all, err = c.read(ctx); err != nil {
				return out, err
			}
		case err != nil:
			return out, fmt.Errorf("remove drivers from %s: %w: %w", all[0], ErrStillListed, err)
		default:
			out.From = append(out.From, all[0].String())
			all = all[1:]
		}
	}
	return out, nil
}

// unlisted returns the drivers that are asked for by name, or all that are listed, or were. It is a pure function.
func unlisted(all []list, asked []string) []string {
	drivers := slices.DeleteFunc(slices.Clone(asked), func(d string) bool { return d == AllDrivers })
	if slices.Contains(asked, AllDrivers) {
		for _, l := range all {
			for _, p := range l.parts {
				drivers = append(drivers, p.drivers...)
			}
			drivers = slices.AppendSeq(drivers, strings.FieldsFuncSeq(l.Annotations[releasedAnnotation], func(c rune) bool { return c == ',' }))
		}
	}
	slices.Sort(drivers)
	return slices.Compact(drivers)
}

// read returns all objects that list drivers.
func (c lists) read(ctx context.Context) (all []list, _ error) {
	for _, role := range roles() {
		l, found, err := c.readPolicy(ctx, role)
		if err != nil {
			return nil, err
		}
		if found {
			all = append(all, l)
		}
	}
	l, found, err := c.readWebhooks(ctx)
	if err != nil {
		return nil, err
	}
	if found {
		all = append(all, l)
	}
	return all, nil
}

// readPolicy returns the policy of a role. An API server that does not serve policies has none.
func (c lists) readPolicy(ctx context.Context, role volume.Role) (_ list, found bool, _ error) {
	ctx, cancel := c.bound(ctx)
	defer cancel()
	policies := c.admission.MutatingAdmissionPolicies()
	o, err := policies.Get(ctx, policyName(role), metav1.GetOptions{})
	l := list{kind: "mutatingadmissionpolicy", patch: func(ctx context.Context, body []byte) error {
		_, err := policies.Patch(ctx, policyName(role), types.StrategicMergePatchType, body, metav1.PatchOptions{})
		return err
	}}
	switch {
	case apierrors.IsNotFound(err):
		return list{}, false, nil
	case err != nil:
		return list{}, false, fmt.Errorf("read mutatingadmissionpolicy/%s: %w", policyName(role), err)
	}
	l.ObjectMeta = o.ObjectMeta
	drivers, err := driversIn(o.Spec.MatchConditions)
	if err != nil {
		return list{}, false, fmt.Errorf("read the drivers of %s: %w: apply the one of this version, or delete it", l, err)
	}
	l.parts, l.bound = []part{{drivers: drivers}}, policyName(role)
	return l, true, nil
}

func (c lists) readWebhooks(ctx context.Context) (_ list, found bool, _ error) {
	ctx, cancel := c.bound(ctx)
	defer cancel()
	configs := c.admission.MutatingWebhookConfigurations()
	o, err := configs.Get(ctx, WebhooksName, metav1.GetOptions{})
	l := list{kind: "mutatingwebhookconfiguration", patch: func(ctx context.Context, body []byte) error {
		_, err := configs.Patch(ctx, WebhooksName, types.StrategicMergePatchType, body, metav1.PatchOptions{})
		return err
	}}
	switch {
	case apierrors.IsNotFound(err):
		return list{}, false, nil
	case err != nil:
		return list{}, false, fmt.Errorf("read mutatingwebhookconfiguration/%s: %w", WebhooksName, err)
	}
	l.ObjectMeta = o.ObjectMeta
	for _, role := range roles() {
		at := slices.IndexFunc(o.Webhooks, func(w admissionv1.MutatingWebhook) bool { return w.Name == pvWebhookName(role) })
		if at < 0 {
			continue
		}
		drivers, err := driversIn(o.Webhooks[at].MatchConditions)
		if err != nil {
			return list{}, false, fmt.Errorf("read the drivers of webhook %s: %w: apply the one of this version, or delete it", o.Webhooks[at].Name, err)
		}
		l.parts = append(l.parts, part{o.Webhooks[at].Name, drivers})
	}
	return l, true, nil
}

// write removes drivers from an object, if that is still as it was read.
func (c lists) write(ctx context.Context, l list, drivers []string) error {
	ctx, cancel := c.bound(ctx)
	defer cancel()
	body, err := unlistPatch(l, drivers)
	if err != nil {
		return err
	}
	return l.patch(ctx, body)
}

// unlistPatch returns the strategic merge patch that removes drivers: match conditions and webhooks are merged by their
// names.
func unlistPatch(l list, drivers []string) ([]byte, error) {
	type conditions []admissionv1.MatchCondition
	without := func(p part) conditions {
		left := slices.DeleteFunc(slices.Clone(p.drivers), func(d string) bool { return slices.Contains(drivers, d) })
		return conditions{{Name: driverCondition, Expression: beforeDrivers + listOf(left) + afterDrivers}}
	}
	body := map[string]any{"metadata": map[string]any{
		"uid": l.UID, "resourceVersion": l.ResourceVersion,
		"annotations": map[string]string{releasedAnnotation: strings.Join(drivers, ",")},
	}}
	var webhooks []any
	for _, p := range l.parts {
		if p.webhook == "" {
			body["spec"] = map[string]any{"matchConditions": without(p)}
			continue
		}
		webhooks = append(webhooks, map[string]any{"name": p.webhook, "matchConditions": without(p)})
	}
	if len(webhooks) > 0 {
		body["webhooks"] = webhooks
	}
	patch, err := json.Marshal(body)
	if err != nil {
		return nil, fmt.Errorf("write the patch of %s: %w", l, err)
	}
	return patch, nil
}

// Standing is which drivers' PVs are protected in the write that binds them.
type Standing struct {
	// InForce: a policy has a binding, or there is a webhook.
	InForce bool
	// Lists are the objects in force that list a driver, as "mutatingadmissionpolicy/NAME", by driver.
	Lists map[string][]string
}

// ReadStanding reads the policies, their bindings and the webhook configuration. It needs get of each; one that is missing
// lists nothing. A list that csi-reclaimer did not write is an error.
func ReadStanding(ctx context.Context, admission admissionclient.AdmissionregistrationV1Interface) (Standing, error) {
	c := lists{admission, callTimeout}
	s := Standing{Lists: map[string][]string{}}
	all, err := c.read(ctx)
	if err != nil {
		return Standing{}, err
	}
	for _, l := range all {
		if l.bound != "" {
			bound, err := c.isBound(ctx, l.bound)
			if err != nil {
				return Standing{}, err
			}
			if !bound {
				continue
			}
		}
		s.InForce = s.InForce || len(l.parts) > 0
		for _, p := range l.parts {
			for _, driver := range p.drivers {
				s.Lists[driver] = append(s.Lists[driver], l.String())
			}
		}
	}
	return s, nil
}

// isBound tells whether a policy has its binding.
func (c lists) isBound(ctx context.Context, name string) (bool, error) {
	ctx, cancel := c.bound(ctx)
	defer cancel()
	_, err := c.admission.MutatingAdmissionPolicyBindings().Get(ctx, name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return false, fmt.Errorf("read mutatingadmissionpolicybinding/%s: %w", name, err)
	}
	return err == nil, nil
}
