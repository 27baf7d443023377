package agents

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/fencing"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
)

// networkFences are agents that are NetworkFences of csi-addons (csiaddons.openshift.io/v1alpha1, cluster-scoped), by
// which the storage system of a driver refuses the addresses of the node. One object fences and unfences for all
// attempts of an agent. It is deleted only with the NodeFence, because csi-addons does not unfence when a NetworkFence
// is deleted.
type networkFences struct{ *Runner }

// Names and messages of csi-addons (api/csiaddons/v1alpha1 of kubernetes-csi-addons, from v0.9 on; earlier versions
// have the same message for both states).
const (
	csiAddonsVersion = "csiaddons.openshift.io/v1alpha1"
	networkFenceKind = "NetworkFence"
	// stateFenced and stateUnfenced are values of spec.fenceState, the desired state.
	stateFenced, stateUnfenced = "Fenced", "Unfenced"
	// resultSucceeded and resultFailed are values of status.result, the result of the last call of the driver. Only
	// status.message tells which state the call was for.
	resultSucceeded, resultFailed = "Succeeded", "Failed"
	fencedMessage                 = "fencing operation successful"
	unfencedMessage               = "unfencing operation successful"
)

// find reads the agent's only object, which is nil if it does not exist.
func (a networkFences) find(ctx context.Context, ask fencing.Ask) (custom, *unstructured.Unstructured, error) {
	return a.object(ctx, csiAddonsVersion, networkFenceKind, "", a.name(ask))
}

// name returns the name of the agent's only object.
func (networkFences) name(ask fencing.Ask) string { return hashed("fence", ask, ask.Agent.Name) }

func (a networkFences) read(ctx context.Context, ask fencing.Ask) (fencing.RunFacts, error) {
	of, o, err := a.find(ctx, ask)
	if err != nil {
		return unknown, err
	}
	about := of.kind + " " + a.name(ask)
	switch {
	case o == nil && ask.Run.Undo && ask.Acted:
		return unknown, fmt.Errorf("%s: %w", about, errDeleted)
	case o == nil && ask.Run.Undo: // it may never have existed
		return facts(fencing.RunSucceeded, about+" is gone.")
	case o == nil:
		return notStarted, nil
	case !owns(ask, o):
		return unknown, fmt.Errorf("%s: %w", about, errForeign)
	case o.GetDeletionTimestamp() != nil:
		return facts(fencing.RunStopping, about+" is terminating.")
	}
	state := stateOf(ask, o, about)
	if state.State == fencing.RunSucceeded && !ask.Run.Undo {
		if err := a.concerns(ctx, ask, o); err != nil {
			return unknown, fmt.Errorf("%s: %w", about, err)
		}
		state.Attributes, err = a.attributes(ctx, ask, o)
	}
	return state, err
}

// errOtherAddresses means that the success of an earlier attempt proves nothing about the node of this attempt.
var errOtherAddresses = errors.New("an earlier attempt has fenced other addresses than the node has now: kubectl " +
	"reclaim unfence, and fence the node again")

// concerns returns an error unless the NetworkFence concerns the run of the node at the beginning of the attempt. The
// object outlives its attempts. Since an earlier one, the node may have booted or been replaced by another machine,
// with other addresses.
func (a networkFences) concerns(ctx context.Context, ask fencing.Ask, o *unstructured.Unstructured) error {
	if boot := o.GetAnnotations()[bootAnnotation]; boot != "" && boot == ask.BootID {
		return nil
	}
	addresses, err := a.addresses(ctx, ask)
	if err != nil {
		return err
	}
	fenced, _, _ := unstructured.NestedStringSlice(o.Object, "spec", "cidrs")
	for _, address := range addresses {
		if address, _ := address.(string); !slices.Contains(fenced, address) {
			return errOtherAddresses
		}
	}
	return nil
}

func stateOf(ask fencing.Ask, o *unstructured.Unstructured, about string) fencing.RunFacts {
	wanted, success := stateFenced, fencedMessage
	if ask.Run.Undo {
		wanted, success = stateUnfenced, unfencedMessage
	}
	result, message := text(o, "status", "result"), text(o, "status", "message")
	switch {
	case text(o, "spec", "fenceState") != wanted:
		return fencing.RunFacts{State: fencing.RunAbsent, Message: about + " does not ask for " + wanted + "."}
	case result == resultSucceeded && message == success:
		return fencing.RunFacts{State: fencing.RunSucceeded, Message: about + ": " + message + "."}
	case result == resultFailed && ask.Run.Undo:
		return fencing.RunFacts{Message: about + " has failed: " + message}
	case result == resultFailed: // csi-addons retries by itself, so only the time limit ends this
		return fencing.RunFacts{State: fencing.Running, Message: about + " has failed: " + message}
	}
	return fencing.RunFacts{State: fencing.Running, Message: about + " is at work."}
}

// start requests the fence, or requests its end if ask undoes it.
func (a networkFences) start(ctx context.Context, ask fencing.Ask) error {
	if ask.Run.Undo {
		return a.stop(ctx, ask)
	}
	if _, err := a.attributes(ctx, ask, nil); err != nil {
		return err
	}
	addresses, err := a.addresses(ctx, ask)
	if err == nil {
		err = a.alone(ctx, ask, addresses)
	}
	if err != nil {
		return err
	}
	spec := map[string]any{"fenceState": stateFenced, "cidrs": addresses,
		"networkFenceClassName": ask.Agent.NetworkFence.NetworkFenceClassName}
	of, o, err := a.find(ctx, ask)
	switch {
	case err != nil:
		return err
	case o != nil && text(o, "spec", "fenceState") == stateFenced:
		return nil
	case o != nil && !unfenced(o):
		return fmt.Errorf("%s %s: %w", of.kind, o.GetName(), errUnfencing)
	case o != nil:
		return of.patch(ctx, ask, o, spec, annotationsOf(ask))
	}
	o = newObject(ask, csiAddonsVersion, of.kind, a.name(ask), spec)
	if _, err = of.Create(ctx, o, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create %s %s: %w", of.kind, o.GetName(), err)
	}
	return nil
}

// errUnfencing means that the status would not yet be about the new fence.
var errUnfencing = errors.New("csi-addons has not yet completed the unfence of an earlier attempt")

// unfenced reports whether csi-addons has carried out the request to unfence.
func unfenced(o *unstructured.Unstructured) bool {
	return text(o, "status", "result") == resultSucceeded && text(o, "status", "message") == unfencedMessage
}

// patch changes the spec of an object that belongs to the fence, and sets annotations, if the object is unchanged since
// it was read.
func (c custom) patch(ctx context.Context, ask fencing.Ask, o *unstructured.Unstructured, spec map[string]any,
	annotations map[string]string) error {
	if !owns(ask, o) {
		return nil
	}
	metadata := map[string]any{"uid": o.GetUID(), "resourceVersion": o.GetResourceVersion()}
	if len(annotations) > 0 {
		metadata["annotations"] = annotations
	}
	body, err := json.Marshal(map[string]any{"spec": spec, "metadata": metadata})
	if err != nil {
		return err
	}
	if _, err := c.Patch(ctx, o.GetName(), types.MergePatchType, body, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("patch %s %s: %w", c.kind, o.GetName(), err)
	}
	return nil
}

// stop requests that the node is unfenced, because the fence may be in force or come into force later.
func (a networkFences) stop(ctx context.Context, ask fencing.Ask) error {
	of, o, err := a.find(ctx, ask)
	if o == nil || text(o, "spec", "fenceState") == stateUnfenced {
		return err
	}
	return of.patch(ctx, ask, o, map[string]any{"fenceState": stateUnfenced}, nil)
}

var (
	// errOtherDriver means that the proof would be about volumes that are not fenced.
	errOtherDriver = errors.New("it is of another driver than the agent names")
	// errNewer means that csi-addons may have used an earlier class with this name.
	errNewer = errors.New("it was created after its NetworkFence")
	// errNoParameters and errParameters mean that the fenced volumes cannot be identified.
	errNoParameters = errors.New("it has no parameters that tell storage systems apart: set " +
		"networkFence.volumeAttributes of the agent, or networkFence.volumes to All if the driver has no other volumes")
	errParameters = fmt.Errorf("it has more than %d parameters, or they are longer than %d and %d characters: set "+
		"networkFence.volumeAttributes of the agent", v1alpha1.MaxVolumeAttributes, v1alpha1.MaxAttributeKey,
		v1alpha1.MaxAttributeValue)
	// errNoAddresses means that the driver has reported no address to fence.
	errNoAddresses = errors.New("no CSIAddonsNode of the driver has reported the addresses of the node for the " +
		"NetworkFenceClass, or csi-addons has deleted it, as it does for a node that it cannot reach; if the storage " +
		"system knows nodes by their internal addresses, set networkFence.addresses of the agent to InternalIP")
	// errShared means that the fence would also stop another node. Nodes report their own addresses, so one with a
	// false report could have all others fenced in its place.
	errShared = errors.New("another node has this address, too, so its fence would also stop that node")
	// errNoInternalIP means that the Node has no address to fence.
	errNoInternalIP = errors.New("the Node has no address of type InternalIP")
)

// errDeleted means that csi-addons has not unfenced the node.
var errDeleted = errors.New("it was deleted, by which csi-addons unfences nothing: remove the addresses of the node " +
	"from the storage system's list yourself, and then kubectl reclaim unfence --abandon")

// ownParameters is the prefix of the NetworkFenceClass parameters that csi-addons does not pass to the driver, such as
// the name of its Secret.
const ownParameters = "csiaddons.openshift.io/"

// attributes returns the volume attributes that identify the PVs of the NetworkFenceClass, which are its parameters,
// unless the agent names them itself. If a NetworkFence exists, the class must not be younger. Driver and parameters of
// a class are immutable, so csi-addons has then used this very class.
func (a networkFences) attributes(ctx context.Context, ask fencing.Ask, fence *unstructured.Unstructured) (
	map[string]v1alpha1.AttributeValue, error) {
	agent := ask.Agent.NetworkFence
	classes, err := a.custom(csiAddonsVersion, "NetworkFenceClass", "")
	if err != nil {
		return nil, err
	}
	class, err := classes.Get(ctx, agent.NetworkFenceClassName, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("read NetworkFenceClass %s: %w", agent.NetworkFenceClassName, err)
	}
	var out map[string]v1alpha1.AttributeValue
	switch {
	case text(class, "spec", "provisioner") != agent.Driver:
		err = errOtherDriver
	case fence != nil && class.GetCreationTimestamp().After(fence.GetCreationTimestamp().Time):
		err = errNewer
	case agent.Volumes != v1alpha1.VolumesAll && len(agent.VolumeAttributes) == 0:
		out, err = parameters(class)
	}
	if err != nil {
		return nil, fmt.Errorf("NetworkFenceClass %s: %w", agent.NetworkFenceClassName, err)
	}
	return out, nil
}

// parameters returns the parameters of a NetworkFenceClass that the driver receives to select the storage system.
func parameters(class *unstructured.Unstructured) (map[string]v1alpha1.AttributeValue, error) {
	all, _, err := unstructured.NestedStringMap(class.Object, "spec", "parameters")
	if err != nil {
		return nil, err
	}
	out := map[string]v1alpha1.AttributeValue{}
	for key, value := range all {
		switch {
		case strings.HasPrefix(key, ownParameters):
			continue
		case len(key) > v1alpha1.MaxAttributeKey, len(value) > v1alpha1.MaxAttributeValue,
			len(out) == v1alpha1.MaxVolumeAttributes:
			return nil, errParameters
		}
		out[key] = v1alpha1.AttributeValue(value)
	}
	if len(out) == 0 {
		return nil, errNoParameters
	}
	return out, nil
}

// addresses returns the addresses by which the storage system knows the node, as sorted CIDRs. Depending on the agent,
// they are the addresses that the driver reports for the NetworkFenceClass, or the internal addresses of the Node.
func (a networkFences) addresses(ctx context.Context, ask fencing.Ask) (cidrs []any, err error) {
	of, none := a.reported, errNoAddresses
	if ask.Agent.NetworkFence.Addresses == v1alpha1.AddressesInternalIP {
		of, none = a.internal, errNoInternalIP
	}
	all, err := of(ctx, ask)
	switch {
	case err != nil:
		return nil, err
	case len(all) == 0:
		return nil, none
	}
	slices.Sort(all)
	for _, cidr := range slices.Compact(all) {
		cidrs = append(cidrs, cidr)
	}
	return cidrs, nil
}

// alone returns an error if another node has one of the addresses, by its Node or by a report of the driver.
func (a networkFences) alone(ctx context.Context, ask fencing.Ask, addresses []any) error {
	var own []netip.Prefix
	for _, address := range addresses {
		cidr, err := prefixOf(fmt.Sprint(address))
		if err != nil {
			return fmt.Errorf("address of node %q: %w", ask.Node, err)
		}
		own = append(own, cidr)
	}
	var shared error
	visit := func(node string, cidrs []string) {
		for _, text := range cidrs {
			cidr, err := prefixOf(text)
			if err == nil && node != ask.Node && slices.ContainsFunc(own, cidr.Overlaps) {
				shared = cmp.Or(shared, fmt.Errorf("%s of node %q: %w", text, node, errShared))
			}
		}
	}
	err := kube.Each(ctx, "nodes", metav1.ListOptions{}, a.clients.CoreV1().Nodes().List, func(node *v1.Node) {
		visit(node.Name, internalOf(node))
	})
	if err == nil && ask.Agent.NetworkFence.Addresses != v1alpha1.AddressesInternalIP {
		err = a.reports(ctx, ask, visit)
	}
	return cmp.Or(err, shared)
}

// prefixOf parses a CIDR. An IPv4 address has one form only, also if it is written as an IPv6 address.
func prefixOf(text string) (netip.Prefix, error) {
	cidr, err := netip.ParsePrefix(text)
	if err == nil && cidr.Addr().Is4In6() && cidr.Bits() >= 96 {
		cidr = netip.PrefixFrom(cidr.Addr().Unmap(), cidr.Bits()-96)
	}
	return cidr, err
}

// reported returns the addresses of the node that CSIAddonsNodes of the driver report for the NetworkFenceClass.
func (a networkFences) reported(ctx context.Context, ask fencing.Ask) (cidrs []string, err error) {
	err = a.reports(ctx, ask, func(node string, of []string) {
		if node == ask.Node {
			cidrs = append(cidrs, of...)
		}
	})
	return cidrs, err
}

// reports calls visit with each node that has a CSIAddonsNode of the driver, and its addresses for the
// NetworkFenceClass.
func (a networkFences) reports(ctx context.Context, ask fencing.Ask, visit func(node string, cidrs []string)) error {
	nodes, err := a.custom(csiAddonsVersion, "CSIAddonsNode", metav1.NamespaceAll)
	if err != nil {
		return err
	}
	return kube.Each(ctx, "CSIAddonsNodes", metav1.ListOptions{}, nodes.List, func(o *unstructured.Unstructured) {
		if text(o, "spec", "driver", "name") == ask.Agent.NetworkFence.Driver {
			visit(text(o, "spec", "driver", "nodeID"), clients(o, ask.Agent.NetworkFence.NetworkFenceClassName))
		}
	})
}

// clients returns the addresses that a CSIAddonsNode reports for a NetworkFenceClass.
func clients(o *unstructured.Unstructured, class string) (cidrs []string) {
	statuses, _, _ := unstructured.NestedSlice(o.Object, "status", "networkFenceClientStatus")
	for _, one := range statuses {
		status, _ := one.(map[string]any)
		if status["networkFenceClassName"] != class {
			continue
		}
		details, _, _ := unstructured.NestedSlice(status, "ClientDetails")
		for _, one := range details {
			detail, _ := one.(map[string]any)
			all, _, _ := unstructured.NestedStringSlice(detail, "cidrs")
			cidrs = append(cidrs, all...)
		}
	}
	return cidrs
}

func (a networkFences) internal(ctx context.Context, ask fencing.Ask) ([]string, error) {
	node, err := a.clients.CoreV1().Nodes().Get(ctx, ask.Node, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("read node %q: %w", ask.Node, err)
	}
	return internalOf(node), nil
}

func internalOf(node *v1.Node) (cidrs []string) {
	for _, address := range node.Status.Addresses {
		if address.Type == v1.NodeInternalIP {
			cidrs = append(cidrs, single(address.Address))
		}
	}
	return cidrs
}

func single(address string) string {
	if strings.Contains(address, ":") {
		return address + "/128"
	}
	return address + "/32"
}
