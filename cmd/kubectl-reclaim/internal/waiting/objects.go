package waiting

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/cmd/kubectl-reclaim/internal/cli"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain/volumes"
	"github.com/csi-reclaimer/csi-reclaimer/internal/web/view"
)

// object is an object to explain. A kind without namespaces ignores the namespace.
type object struct {
	kind            cli.Kind
	namespace, name string
}

// parseObjects parses the arguments: KIND/NAME for each object, or a kind and the names of objects of it, or names
// alone.
func parseObjects(args []string) (all []object, err error) {
	if len(args) == 0 {
		return nil, errors.New("nothing to explain: name an object, as KIND/NAME, KIND NAME or NAME, or add --all")
	}
	if slices.ContainsFunc(args, func(arg string) bool { return strings.Contains(arg, "/") }) {
		for _, arg := range args {
			kind, name, err := cli.ParseObject(arg)
			if err != nil {
				return nil, err
			}
			all = append(all, object{kind: kind, name: name})
		}
		return all, nil
	}
	kind, known := cli.KindOf(args[0])
	if known {
		args = args[1:]
	}
	if len(args) == 0 {
		return nil, fmt.Errorf("no name after the kind: write %s NAME or %[1]s/NAME", kind.Word())
	}
	for _, name := range args {
		if name == "" {
			return nil, errors.New("an empty name cannot be explained")
		}
		all = append(all, object{kind: kind, name: name})
	}
	return all, nil
}

// pages holds the kinds whose objects also have a page.
var pages = map[cli.Kind]view.Kind{cli.KindPV: view.KindPV, cli.KindClaim: view.KindClaim, cli.KindPod: view.KindPod,
	cli.KindNode: view.KindNode}

// objectsOf returns the objects of rows, each once. The lock and the volume in flight of a claim are explained with the
// claim.
func objectsOf(rows []view.Row) (all []object) {
	seen := map[object]bool{}
	for _, row := range rows {
		o := object{cli.KindClaim, row.Namespace, row.Name}
		switch row.Kind {
		case view.KindPV:
			o.kind = cli.KindPV
		case view.KindPod:
			o.kind = cli.KindPod
		case view.KindFence:
			o.kind = cli.KindNode
		case view.KindInFlight:
			o.namespace, o.name, _ = strings.Cut(row.Claim, "/")
		default:
		}
		if !seen[o] {
			seen[o] = true
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
	var found []cli.Kind
	var failed error
	for kind, err := range map[cli.Kind]error{cli.KindPV: pv, cli.KindClaim: claim, cli.KindPod: pod} {
		switch {
		case err == nil:
			found = append(found, kind)
		case !apierrors.IsNotFound(err):
			failed = fmt.Errorf("look for %s %q: %w", kind.Word(), o.name, err)
		}
	}
	if _, inFlight := volumes.ReadDeletedClaim(ctx, c, o.namespace, o.name); inFlight && len(found) == 0 {
		found = []cli.Kind{cli.KindClaim}
	}
	switch {
	case len(found) > 1:
		return o, ambiguous(o, found)
	case len(found) == 1:
		o.kind = found[0]
		return o, nil
	case failed != nil:
		return o, failed
	}
	return o, fmt.Errorf("%w %q, and no claim or pod of that name in namespace %s", errNoObject, o.name, o.namespace)
}

// errNoObject means that a name without a kind is the name of nothing.
var errNoObject = cli.NewError("there is no PV", "name its kind and namespace: kubectl reclaim explain node/NAME, or "+
	"pvc/NAME -n NAMESPACE; to list waiting objects: kubectl reclaim list -A")

// ambiguous returns the error of a name without a kind that several objects have.
func ambiguous(o object, kinds []cli.Kind) error {
	slices.Sort(kinds)
	forms := make([]string, 0, len(kinds))
	for _, kind := range kinds {
		forms = append(forms, kind.Word()+"/"+o.name)
	}
	return cli.WithStep(fmt.Errorf("%q is the name of %d objects in namespace %s", o.name, len(kinds), o.namespace),
		"write "+strings.Join(forms, " or "))
}
