package capacity

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
)

// surveyKey is the only key of the survey's queue, so that one survey covers many nodes that join together.
type surveyKey struct{}

// survey looks up the driver's segments and the owner, and enqueues the items that have to change. The segments come
// first: the metrics count the wanted objects by them, so an alert reports objects that lack only their owner, and
// objects of a segment that is gone are deleted without one.
func (c *Controller) survey(ctx context.Context, _ surveyKey) controller.Result {
	segments, err := c.refreshSegments()
	if err != nil {
		klog.FromContext(ctx).Info("The driver's topology segments are unknown; retrying", "reason", ReasonAPIReadFailed,
			"err", err)
		return c.retries().Retry()
	}
	unknown := c.findOwner(ctx)
	for _, item := range c.due(segments) {
		c.items.Enqueue(item)
	}
	switch {
	case unknown == nil:
		return controller.Done()
	case ctx.Err() == nil:
		klog.FromContext(ctx).Info("The owner of the capacity objects is unknown, so none is created; retrying",
			"reason", ReasonOwnerUnknown, "err", unknown)
	}
	return c.retries().Retry()
}

// findOwner looks up the owner of the objects, until it succeeds once.
func (c *Controller) findOwner(ctx context.Context) error {
	t := c.tracker
	t.mu.Lock()
	known := t.ownerKnown
	t.mu.Unlock()
	if known {
		return nil
	}
	if c.cfg.Owner == nil {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.ownerKnown = true
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, kube.Timeout)
	defer cancel()
	owner, err := c.cluster.owner(ctx, *c.cfg.Owner)
	if err != nil {
		return fmt.Errorf("find the owner of the capacity objects: %w", err)
	}
	klog.FromContext(ctx).Info("Capacity objects are deleted with their owner", "apiVersion", owner.APIVersion, "kind",
		owner.Kind, "name", owner.Name)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.owner, t.ownerKnown = &owner, true
	return nil
}

func (c *Controller) refreshSegments() (map[Segment]bool, error) {
	segments, err := c.segments()
	if err != nil {
		return nil, err
	}
	t := c.tracker
	t.mu.Lock()
	defer t.mu.Unlock()
	if !maps.Equal(t.segments, segments) {
		klog.Background().V(2).Info("The driver's nodes are in these segments", "segments", len(segments))
	}
	t.segments = segments
	return segments, nil
}

// due returns the wanted items without an answer of the driver so far, and unwanted items with an object or a record.
func (c *Controller) due(segments map[Segment]bool) []WorkItem {
	goal := c.goalOf(segments)
	visit := map[WorkItem]bool{}
	c.objects.Each(func(o Object) {
		if !goal[o.Item] {
			visit[o.Item] = true
		}
	})
	t := c.tracker
	t.mu.Lock()
	defer t.mu.Unlock()
	for item := range goal {
		if t.records[item].at.IsZero() {
			visit[item] = true
		}
	}
	for item := range t.records {
		if !goal[item] {
			visit[item] = true // its record is dropped
		}
	}
	return slices.Collect(maps.Keys(visit))
}

// goalOf returns the items that need an object: each published class in each segment.
func (c *Controller) goalOf(segments map[Segment]bool) map[WorkItem]bool {
	goal := map[WorkItem]bool{}
	c.classes.Each(func(k class) {
		for place := range segments {
			if k.ours && (!k.immediate || c.cfg.ForImmediate) {
				goal[WorkItem{k.name, place}] = true
			}
		}
	})
	return goal
}

var (
	// errUncontrolled: the chain of controllers ends below the requested level.
	errUncontrolled = errors.New("no controller owns it")
	// errReplaced: the name now belongs to an object with another UID.
	errReplaced = errors.New("another object has the owner's name")
	// errNoKind: the API server does not serve the kind in the owner reference.
	errNoKind = errors.New("there is no such kind")
)

// owners looks up the controllers of pods in one namespace.
type owners struct {
	namespace string
	objects   metadata.Interface
	kinds     discovery.ServerResourcesInterface
}

func newOwners(config *rest.Config, namespace string) (owners, error) {
	objects, err := metadata.NewForConfig(config)
	if err != nil {
		return owners{}, fmt.Errorf("create a client for owners: %w", err)
	}
	kinds, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return owners{}, fmt.Errorf("create a client for the kinds of owners: %w", err)
	}
	return owners{namespace, objects, kinds}, nil
}

// find follows controller references upward from the pod, without a read of the owner itself, so the owner's kind
// needs no permission: for a Deployment, find reads only the pod and its ReplicaSet.
func (o owners) find(ctx context.Context, by OwnedBy) (metav1.OwnerReference, error) {
	pod, err := o.read(ctx, schema.GroupVersionResource{Version: "v1", Resource: "pods"}, by.Pod)
	if err != nil {
		return metav1.OwnerReference{}, err
	}
	if by.Level == 0 {
		return reference(metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}), nil
	}
	owner, err := controllerOf(pod)
	for range by.Level - 1 {
		if err != nil {
			break
		}
		owner, err = o.above(ctx, owner)
	}
	return owner, err
}

// above returns the controller of an owner, after checking the owner's UID.
func (o owners) above(ctx context.Context, owner metav1.OwnerReference) (metav1.OwnerReference, error) {
	resource, err := o.resource(owner)
	if err != nil {
		return owner, err
	}
	object, err := o.read(ctx, resource, owner.Name)
	if err != nil {
		return owner, err
	}
	if object.UID != owner.UID {
		return owner, fmt.Errorf("read %s %q: %w", owner.Kind, owner.Name, errReplaced)
	}
	return controllerOf(object)
}

func (o owners) read(ctx context.Context, resource schema.GroupVersionResource,
	name string) (*metav1.PartialObjectMetadata, error) {
	object, err := o.objects.Resource(resource).Namespace(o.namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("read %s %q: %w", resource.Resource, name, err)
	}
	return object, nil
}

func controllerOf(object *metav1.PartialObjectMetadata) (metav1.OwnerReference, error) {
	controller := metav1.GetControllerOfNoCopy(object)
	if controller == nil {
		return metav1.OwnerReference{}, fmt.Errorf("find the owner of %s: %w", object.Name, errUncontrolled)
	}
	return reference(*controller), nil
}

// reference returns the owner as a controller reference, as external-provisioner writes it.
func reference(of metav1.OwnerReference) metav1.OwnerReference {
	yes := true
	return metav1.OwnerReference{APIVersion: of.APIVersion, Kind: of.Kind, Name: of.Name, UID: of.UID, Controller: &yes}
}

// resource returns the API resource of an owner's kind by discovery.
func (o owners) resource(owner metav1.OwnerReference) (schema.GroupVersionResource, error) {
	version, err := schema.ParseGroupVersion(owner.APIVersion)
	if err != nil {
		return schema.GroupVersionResource{}, fmt.Errorf("read the owner %s %q: %w", owner.Kind, owner.Name, err)
	}
	list, err := o.kinds.ServerResourcesForGroupVersion(owner.APIVersion)
	if err != nil {
		return schema.GroupVersionResource{}, fmt.Errorf("find the kind %s of %s: %w", owner.Kind, owner.APIVersion, err)
	}
	for _, r := range list.APIResources {
		if r.Kind == owner.Kind && !strings.Contains(r.Name, "/") { // a name with a slash is a subresource
			return version.WithResource(r.Name), nil
		}
	}
	return schema.GroupVersionResource{}, fmt.Errorf("find the kind %s of %s: %w", owner.Kind, owner.APIVersion, errNoKind)
}
