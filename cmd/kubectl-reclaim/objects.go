package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain/volumes"
	"github.com/csi-reclaimer/csi-reclaimer/internal/web/view"
)

// kind is a kind of object that the plugin explains or completes.
type kind uint8

const (
	// kindAny is a PV, or else a claim or a pod.
	kindAny kind = iota
	kindPV
	kindClaim
	kindPod
	kindNamespace
	kindNode
	kindSet
	// kindFence, kindPolicy and kindDriver are only completed, not explained.
	kindFence
	kindPolicy
	kindDriver
)

// kinds holds the words for each kind, as kubectl takes them, and the shell completes the first. A NodeFence has the
// name of its node.
var kinds = map[kind][]string{
	kindPV:        {"pv", "pvs", "persistentvolume", "persistentvolumes"},
	kindClaim:     {"pvc", "pvcs", "persistentvolumeclaim", "persistentvolumeclaims"},
	kindPod:       {"pod", "po", "pods"},
	kindNamespace: {"namespace", "ns", "namespaces"},
	kindNode:      {"node", "no", "nodes", "nodefence", "nodefences", "nodefence.csi-reclaimer.io"},
	kindSet:       setWords(),
}

// object is an object to explain. A kind without namespaces ignores the namespace.
type object struct {
	kind            kind
	namespace, name string
}

func kindOf(word string) (kind, bool) {
	for kind, words := range kinds {
		if slices.Contains(words, strings.ToLower(word)) {
			return kind, true
		}
	}
	return kindAny, false
}

// parseObject parses KIND/NAME.
func parseObject(arg string) (kind, string, error) {
	of, name, found := strings.Cut(arg, "/")
	if kind, known := kindOf(of); found && known && name != "" && !strings.Contains(name, "/") {
		return kind, name, nil
	}
	return kindAny, "", fmt.Errorf("%q cannot be explained: write pv/NAME, pvc/NAME, pod/NAME, namespace/NAME, node/NAME "+
		"or statefulset/NAME", arg)
}

// parseObjects parses the arguments: KIND/NAME for each object, or a kind and the names of objects of it, or names
// alone.
func parseObjects(args []string) (all []object, err error) {
	if len(args) == 0 {
		return nil, errors.New("nothing to explain: name an object, as KIND/NAME, KIND NAME or NAME, or add --all")
	}
	if slices.ContainsFunc(args, func(arg string) bool { return strings.Contains(arg, "/") }) {
		for _, arg := range args {
			kind, name, err := parseObject(arg)
			if err != nil {
				return nil, err
			}
			all = append(all, object{kind: kind, name: name})
		}
		return all, nil
	}
	kind, known := kindOf(args[0])
	if known {
		args = args[1:]
	}
	if len(args) == 0 {
		return nil, fmt.Errorf("no name after the kind: write %s NAME or %[1]s/NAME", kinds[kind][0])
	}
	for _, name := range args {
		if name == "" {
			return nil, errors.New("an empty name cannot be explained")
		}
		all = append(all, object{kind: kind, name: name})
	}
	return all, nil
}

// objectsOf returns the objects of rows, each once. The lock and the volume in flight of a claim are explained with the
// claim.
func objectsOf(rows []view.Row) (all []object) {
	for _, row := range rows {
		o := object{namespace: row.Namespace, name: row.Name}
		switch row.Kind {
		case view.KindPV:
			o.kind = kindPV
		case view.KindPod:
			o.kind = kindPod
		case view.KindFence:
			o.kind = kindNode
		case view.KindInFlight:
			o.kind = kindClaim
			o.namespace, o.name, _ = strings.Cut(row.Claim, "/")
		default:
			o.kind = kindClaim
		}
		if !slices.Contains(all, o) {
			all = append(all, o)
		}
	}
	return all
}

// find returns the kind of an object of kindAny. A name of several objects, or of none, is an error; a read that fails
// only counts if no object is found.
func find(ctx context.Context, c explain.Cluster, o object) (object, error) {
	_, pv := c.PV(ctx, o.name)
	_, claim := c.Claim(ctx, o.namespace, o.name)
	_, pod := c.Core.Pods(o.namespace).Get(ctx, o.name, metav1.GetOptions{})
	var found []kind
	var failed error
	for kind, err := range map[kind]error{kindPV: pv, kindClaim: claim, kindPod: pod} {
		switch {
		case err == nil:
			found = append(found, kind)
		case !apierrors.IsNotFound(err):
			failed = fmt.Errorf("look for %s %q: %w", kinds[kind][0], o.name, err)
		}
	}
	if _, inFlight := volumes.ReadDeletedClaim(ctx, c, o.namespace, o.name); inFlight && len(found) == 0 {
		found = []kind{kindClaim}
	}
	switch {
	case len(found) > 1:
		slices.Sort(found)
		return o, &ambiguousError{o, found}
	case len(found) == 1:
		o.kind = found[0]
		return o, nil
	case failed != nil:
		return o, failed
	}
	return o, fmt.Errorf("%w %q, and no claim or pod of that name in namespace %s", errNoObject, o.name, o.namespace)
}

// errNoObject means that a name without a kind is the name of nothing.
var errNoObject = errors.New("there is no PV")

// ambiguousError means that several objects have a name that was given without a kind.
type ambiguousError struct {
	object object
	kinds  []kind
}

func (e *ambiguousError) Error() string {
	return fmt.Sprintf("%q is the name of %d objects in namespace %s", e.object.name, len(e.kinds), e.object.namespace)
}

// NextStep names the forms that are not ambiguous.
func (e *ambiguousError) NextStep() string {
	forms := make([]string, 0, len(e.kinds))
	for _, kind := range e.kinds {
		forms = append(forms, kinds[kind][0]+"/"+e.object.name)
	}
	return "write " + strings.Join(forms, " or ")
}
