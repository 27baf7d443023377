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

	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// releasedAnnotation on a policy or a webhook configuration holds the drivers that a release of allDrivers removed from
// the lists and has not finished yet, separated by commas. The next release of allDrivers continues with them. A
// finished release leaves no annotation, because another program may own the finalizers of its drivers from then on.
const releasedAnnotation = "csi-reclaimer.io/released-drivers"

// companionMark ends the name of a driver in releasedAnnotation that was listed for role companion alone.
const companionMark = "/companion"

// ErrStillListed means that a driver is still listed, because it could not be removed from the list.
var ErrStillListed = errors.New("still listed")

// Removed is the result of RemoveDrivers.
type Removed struct {
	// Drivers are the requested drivers and, for allDrivers, all that were listed, or that an unfinished [Release] of
	// allDrivers removed. No list has them any more.
	Drivers []string
	// Objects are the objects that listed any of them before, as "mutatingadmissionpolicy/NAME".
	Objects []string

	// listed are the drivers that remain in the lists.
	listed Drivers
	// companions are the Drivers that were listed for role companion alone.
	companions []string
}

// RemoveDrivers removes drivers, given by their names or as allDrivers, from the lists of all policies and webhooks
// that add csi-reclaimer's finalizers in the write that binds a PV. It leaves the rest of the objects unchanged. API
// servers observe the change some time later: see [WaitUntilRemoved].
//
// RemoveDrivers needs get of the policies [PolicyName] and [CompanionPolicyName] and of the
// MutatingWebhookConfiguration [WebhooksName], and patch of the objects that list a driver. A missing object lists
// nothing. A list that csi-reclaimer did not write is an error and stays unchanged; ErrStillListed is the error for a
// list that could not be written.
func RemoveDrivers(ctx context.Context, config *rest.Config, drivers []string) (Removed, error) {
	clients, err := kube.NewClients(config)
	if err != nil {
		return Removed{}, err
	}
	return driverLists{clients.Admission, callTimeout}.remove(ctx, drivers)
}

// driverLists gives access to the objects that list drivers.
type driverLists struct {
	admission admissionclient.AdmissionregistrationV1Interface
	// timeout bounds one call.
	timeout time.Duration
}

// driverList is one object that lists drivers.
type driverList struct {
	kind string
	metav1.ObjectMeta
	// parts are its lists: one in a policy, and one for each role in a webhook configuration.
	parts []listPart
	// binding is the name of the binding that puts it in force, empty if it needs none.
	binding string
	patch   func(ctx context.Context, body []byte) error
}

// listPart is a list of the drivers of a role. webhook is the name of the webhook that has the list, empty in a policy.
type listPart struct {
	role    volume.Role
	webhook string
	drivers []string
}

func (l driverList) String() string { return l.kind + "/" + l.Name }

// lists reports whether any part has one of the drivers.
func (l driverList) lists(drivers []string) bool {
	return slices.ContainsFunc(l.parts, func(p listPart) bool { return p.lists(drivers) })
}

func (p listPart) lists(drivers []string) bool {
	return len(except(p.drivers, drivers)) < len(p.drivers)
}

// record returns the drivers that the object remembers of a release of allDrivers, some with companionMark.
func (l driverList) record() []string {
	return strings.FieldsFunc(l.Annotations[releasedAnnotation], func(c rune) bool { return c == ',' })
}

// recordExcept is a pure function that returns a record without these drivers.
func recordExcept(record, drivers []string) []string {
	return slices.DeleteFunc(slices.Clone(record), func(entry string) bool {
		return slices.Contains(drivers, strings.TrimSuffix(entry, companionMark))
	})
}

// except is a pure function that returns a list without these drivers.
func except(list, drivers []string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(d string) bool { return slices.Contains(drivers, d) })
}

func (c driverLists) withTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, c.timeout)
}

func (c driverLists) remove(ctx context.Context, asked []string) (Removed, error) {
	all, err := c.read(ctx)
	if err != nil {
		return Removed{}, err
	}
	out := Removed{Drivers: driversToRemove(all, asked)}
	out.companions = companionsAmong(out.Drivers, all)
	out.listed = listedExcept(all, out.Drivers)
	for len(all) > 0 {
		if !all[0].lists(out.Drivers) {
			all = all[1:]
			continue
		}
		// A named release needs no record, because the next run names its drivers again.
		record := recordExcept(all[0].record(), out.Drivers)
		if slices.Contains(asked, allDrivers) {
			record = recordOf(out.Drivers, out.companions)
		}
		switch err := c.write(ctx, all[0], out.Drivers, record); {
		case apierrors.IsConflict(err): // another client changed it in between
			if all, err = c.read(ctx); err != nil {
				return out, err
			}
			out.listed = listedExcept(all, out.Drivers)
		case err != nil:
			return out, fmt.Errorf("remove drivers from %s: %w: %w", all[0], ErrStillListed, err)
		default:
			out.Objects = append(out.Objects, all[0].String())
			all = all[1:]
		}
	}
	return out, nil
}

// forget removes the drivers of a finished release from the records of unfinished ones.
func (c driverLists) forget(ctx context.Context, drivers []string) error {
	all, err := c.read(ctx)
	if err != nil {
		return err
	}
	for _, l := range all {
		record := recordExcept(l.record(), drivers)
		if len(record) == len(l.record()) {
			continue
		}
		if err := c.write(ctx, l, nil, record); err != nil {
			return fmt.Errorf("remove the released drivers from annotation %s of %s: %w", releasedAnnotation, l, err)
		}
	}
	return nil
}

// listedExcept is a pure function that returns the drivers in the lists other than these.
func listedExcept(all []driverList, drivers []string) Drivers {
	listed := Drivers{}
	for _, l := range all {
		for _, p := range l.parts {
			listed[p.role] = append(listed[p.role], except(p.drivers, drivers)...)
		}
	}
	return listed
}

// driversToRemove is a pure function that returns the drivers requested by name. For allDrivers, it returns all that
// are listed, and those of an unfinished release.
func driversToRemove(all []driverList, asked []string) []string {
	drivers := except(asked, []string{allDrivers})
	if slices.Contains(asked, allDrivers) {
		for _, l := range all {
			for _, p := range l.parts {
				drivers = append(drivers, p.drivers...)
			}
			for _, entry := range l.record() {
				drivers = append(drivers, strings.TrimSuffix(entry, companionMark))
			}
		}
	}
	slices.Sort(drivers)
	return slices.Compact(drivers)
}

// companionsAmong is a pure function that returns those of the drivers that are listed, or recorded, for role companion
// alone.
func companionsAmong(drivers []string, all []driverList) []string {
	var companions, owners []string
	for _, l := range all {
		for _, p := range l.parts {
			if p.role == volume.RoleCompanion {
				companions = append(companions, p.drivers...)
			} else {
				owners = append(owners, p.drivers...)
			}
		}
		for _, entry := range l.record() {
			if name, marked := strings.CutSuffix(entry, companionMark); marked {
				companions = append(companions, name)
			} else {
				owners = append(owners, name)
			}
		}
	}
	return slices.DeleteFunc(slices.Clone(drivers), func(d string) bool {
		return !slices.Contains(companions, d) || slices.Contains(owners, d)
	})
}

// recordOf is a pure function that returns the record of a release of drivers.
func recordOf(drivers, companions []string) (record []string) {
	for _, d := range drivers {
		if slices.Contains(companions, d) {
			d += companionMark
		}
		record = append(record, d)
	}
	return record
}

// Kinds of objects in errors and results.
const (
	policyKind  = "mutatingadmissionpolicy"
	bindingKind = policyKind + "binding"
	configKind  = "mutatingwebhookconfiguration"
)

// read returns all objects that list drivers.
func (c driverLists) read(ctx context.Context) (all []driverList, _ error) {
	for _, role := range roles() {
		l, err := c.readPolicy(ctx, role)
		if err != nil {
			return nil, err
		}
		all = append(all, l...)
	}
	l, err := c.readWebhooks(ctx)
	return append(all, l...), err
}

// readPolicy returns the policy of a role, or none.
func (c driverLists) readPolicy(ctx context.Context, role volume.Role) ([]driverList, error) {
	ctx, cancel := c.withTimeout(ctx)
	defer cancel()
	policies := c.admission.MutatingAdmissionPolicies()
	o, err := readIfExists(ctx, policyKind, policyName(role), policies.Get)
	if o == nil {
		return nil, err
	}
	l := driverList{kind: policyKind, ObjectMeta: o.ObjectMeta, binding: policyName(role),
		patch: func(ctx context.Context, body []byte) error {
			_, err := policies.Patch(ctx, policyName(role), types.StrategicMergePatchType, body, metav1.PatchOptions{})
			return err
		}}
	drivers, err := driversIn(o.Spec.MatchConditions)
	if err != nil {
		return nil, fmt.Errorf("read the drivers of %s: %w: apply the one of this version, or delete it", l, err)
	}
	l.parts = []listPart{{role: role, drivers: drivers}}
	return []driverList{l}, nil
}

// readWebhooks returns the webhook configuration, or none.
func (c driverLists) readWebhooks(ctx context.Context) ([]driverList, error) {
	ctx, cancel := c.withTimeout(ctx)
	defer cancel()
	configs := c.admission.MutatingWebhookConfigurations()
	o, err := readIfExists(ctx, configKind, WebhooksName, configs.Get)
	if o == nil {
		return nil, err
	}
	l := driverList{kind: configKind, ObjectMeta: o.ObjectMeta, patch: func(ctx context.Context, body []byte) error {
		_, err := configs.Patch(ctx, WebhooksName, types.StrategicMergePatchType, body, metav1.PatchOptions{})
		return err
	}}
	for _, role := range roles() {
		at := slices.IndexFunc(o.Webhooks, func(w admissionv1.MutatingWebhook) bool { return w.Name == pvWebhookName(role) })
		if at < 0 {
			continue
		}
		drivers, err := driversIn(o.Webhooks[at].MatchConditions)
		if err != nil {
			return nil, fmt.Errorf("read the drivers of webhook %s: %w: apply the one of this version, or delete it",
				o.Webhooks[at].Name, err)
		}
		l.parts = append(l.parts, listPart{role, o.Webhooks[at].Name, drivers})
	}
	return []driverList{l}, nil
}

// write removes drivers from an object, and sets its record of an unfinished release. It fails if the object has
// changed since it was read.
func (c driverLists) write(ctx context.Context, l driverList, drivers, record []string) error {
	ctx, cancel := c.withTimeout(ctx)
	defer cancel()
	body, err := removalPatch(l, drivers, record)
	if err != nil {
		return err
	}
	return l.patch(ctx, body)
}

// removalPatch returns the strategic merge patch that removes drivers from the parts that list them, and sets the
// record. Match conditions and webhooks are merged by their names.
func removalPatch(l driverList, drivers, record []string) ([]byte, error) {
	var annotation any // null removes it
	if len(record) > 0 {
		annotation = strings.Join(record, ",")
	}
	body := map[string]any{"metadata": map[string]any{
		"uid": l.UID, "resourceVersion": l.ResourceVersion, "annotations": map[string]any{releasedAnnotation: annotation},
	}}
	var webhooks []any
	for _, p := range l.parts {
		if !p.lists(drivers) {
			continue
		}
		conditions := []admissionv1.MatchCondition{{Name: driverCondition,
			Expression: beforeDrivers + listOf(except(p.drivers, drivers)) + afterDrivers}}
		if p.webhook == "" {
			body["spec"] = map[string]any{"matchConditions": conditions}
			continue
		}
		webhooks = append(webhooks, map[string]any{"name": p.webhook, "matchConditions": conditions})
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

// Coverage holds the drivers whose PVs are protected in the write that binds them.
type Coverage struct {
	// InForce is true if a policy has a binding, or if a webhook exists.
	InForce bool
	// Lists are the objects in force that list a driver, as "mutatingadmissionpolicy/NAME", by driver.
	Lists map[string][]string
}

// ReadCoverage reads the policies, their bindings and the webhook configuration. It needs get of each; a missing object
// lists nothing. A list that csi-reclaimer did not write is an error.
func ReadCoverage(ctx context.Context, admission admissionclient.AdmissionregistrationV1Interface) (Coverage, error) {
	c := driverLists{admission, callTimeout}
	s := Coverage{Lists: map[string][]string{}}
	all, err := c.read(ctx)
	if err != nil {
		return Coverage{}, err
	}
	for _, l := range all {
		if l.binding != "" {
			bound, err := c.isBound(ctx, l.binding)
			if err != nil {
				return Coverage{}, err
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

// isBound reports whether a policy has its binding.
func (c driverLists) isBound(ctx context.Context, name string) (bool, error) {
	ctx, cancel := c.withTimeout(ctx)
	defer cancel()
	binding, err := readIfExists(ctx, bindingKind, name, c.admission.MutatingAdmissionPolicyBindings().Get)
	return binding != nil, err
}
