package topology

import (
	"errors"
	"fmt"
	"math/rand"
	"slices"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// node returns a node with the driver and with a term such as "zone=a,rack=1".
func node(name, at string) Node {
	n := Node{Name: name, Labels: map[string]string{"kubernetes.io/hostname": name}}
	for _, s := range strings.Split(at, ",") {
		if key, value, found := strings.Cut(s, "="); found {
			n.Labels[key], n.Keys = value, append(n.Keys, key)
		}
	}
	return n
}

// without returns a node that has the labels but not the driver.
func without(n Node) Node { n.Keys = nil; return n }

// keyless returns a node that has the driver, which reports no topology.
func keyless(n Node) Node { n.Keys, n.Registered = nil, true; return n }

// unlabelled returns a node that has the driver but not its labels yet.
func unlabelled(n Node) Node { n.Labels = nil; return n }

// selector parses an element of allowedTopologies, such as "zone in a b,rack in 1".
func selector(text string) v1.TopologySelectorTerm {
	var t v1.TopologySelectorTerm
	for _, expression := range strings.Split(text, ",") {
		if key, values, found := strings.Cut(expression, " in "); found {
			t.MatchLabelExpressions = append(t.MatchLabelExpressions, v1.TopologySelectorLabelRequirement{Key: key,
				Values: strings.Fields(values)})
		}
	}
	return t
}

func selectors(texts ...string) (all []v1.TopologySelectorTerm) {
	for _, text := range texts {
		all = append(all, selector(text))
	}
	return all
}

// show formats topologies like "zone=a; zone=b".
func show(topologies []*csi.Topology) string {
	var all []string
	for _, topology := range topologies {
		var t term
		for key, value := range topology.Segments {
			t, _ = t.with(segment{key, value})
		}
		all = append(all, t.String())
	}
	return strings.Join(all, "; ")
}

func TestRequire(t *testing.T) {
	nodes := []Node{node("n3", "zone=c"), node("n1", "zone=a"), node("n2", "zone=b"), node("n4", "zone=b"),
		without(node("n5", ""))}
	at := func(n Node) *Node { return &n }
	cases := map[string]struct {
		f                    Facts
		requisite, preferred string
		err                  error
	}{
		"immediate: where nodes are, each place once, spread by name": {Facts{Claim: "data-web-0", Nodes: nodes},
			"zone=a; zone=b; zone=c", "zone=a; zone=b; zone=c", nil},
		"immediate: the set's next one goes to the next place": {Facts{Claim: "data-web-1", Nodes: nodes},
			"zone=a; zone=b; zone=c", "zone=b; zone=c; zone=a", nil},
		"immediate: another claim of the same pod goes to the same one": {Facts{Claim: "logs-web-1", Nodes: nodes},
			"zone=a; zone=b; zone=c", "zone=b; zone=c; zone=a", nil},
		"immediate: the allowed topologies, nodes or not": {Facts{Claim: "data-web-0",
			Allowed: selectors("zone in x")}, "zone=x", "zone=x", nil},
		"immediate: left to the driver": {Facts{Nodes: nodes, SkipImmediate: true}, "", "",
			nil},
		"immediate: left to the driver within the allowed topologies": {Facts{Allowed: selectors("zone in x"),
			SkipImmediate: true}, "zone=x", "zone=x", nil},
		"immediate: no node has the driver": {Facts{Nodes: []Node{without(node("n1",
			"zone=a"))}}, "", "", ErrNowhere},
		"immediate: the labels are not there yet": {Facts{Nodes: []Node{unlabelled(node("n1",
			"zone=a"))}}, "", "", ErrNowhere},
		"immediate: a node with the labels counts without the driver": {Facts{Claim: "d-0",
			Nodes: []Node{node("n1", "zone=a"), without(node("n2", "zone=a")), {Name: "n3",
				Labels: map[string]string{"zone": "b"}}}}, "zone=a; zone=b", "zone=b; zone=a", nil},
		"immediate: no node at all": {Facts{}, "", "", ErrNowhere},
		"immediate: the class's topologies select nothing": {Facts{Nodes: nodes, Allowed: selectors("")}, "",
			"", nil},
		"immediate: keys of the majority while the driver is exchanged": {Facts{Claim: "d-0",
			Nodes: []Node{node("n1", "old=a"), node("n2", "zone=a"), node("n3", "zone=b")}}, "zone=a; zone=b",
			"zone=b; zone=a", nil},

		"immediate: a node with fewer keys": {Facts{Claim: "d-0", Nodes: []Node{node("n1", "region=r1,zone=a"),
			node("n2", "region=r1,zone=b"), node("n3", "region=r2")}}, "region=r2; region=r1,zone=a; region=r1,zone=b",
			"region=r1,zone=b; region=r2; region=r1,zone=a", nil},
		"immediate: most nodes have fewer keys": {Facts{Claim: "d-0", Nodes: []Node{node("n1", "region=r1,zone=a"),
			node("n2", "region=r2"), node("n3", "region=r2")}}, "region=r2; region=r1,zone=a",
			"region=r1,zone=a; region=r2", nil},
		"immediate: a node with fewer keys has other labels": {Facts{Claim: "d-0", Nodes: []Node{
			node("n1", "region=r1,zone=a"), {Name: "n2", Labels: map[string]string{"region": "r1", "zone": "b"},
				Keys: []string{"region"}}}}, "region=r1; region=r1,zone=a", "region=r1,zone=a; region=r1", nil},
		"immediate: a node without the driver is where its labels say, as exactly as they do": {Facts{Claim: "d-0",
			Nodes: []Node{node("n1", "region=r1,zone=a"), node("n2", "region=r2"),
				{Name: "n3", Labels: map[string]string{"region": "r3", "zone": "c"}},
				{Name: "n4", Labels: map[string]string{"region": "r4"}}}},
			"region=r2; region=r4; region=r1,zone=a; region=r3,zone=c",
			"region=r3,zone=c; region=r2; region=r4; region=r1,zone=a", nil},
		"immediate: a node that lacks one of its labels is nowhere": {Facts{Claim: "d-0", Nodes: []Node{
			node("n1", "region=r1,zone=a"), node("n2", "region=r2"),
			{Name: "n3", Labels: map[string]string{"region": "r3"}, Keys: []string{"region", "zone"}}}},
			"region=r2; region=r1,zone=a", "region=r1,zone=a; region=r2", nil},

		"late: everywhere, the selected node's place first": {Facts{Nodes: nodes, Selected: at(node("n2", "zone=b"))},
			"zone=a; zone=b; zone=c", "zone=b; zone=c; zone=a", nil},
		"late: the selected node is not yet among the nodes": {Facts{Nodes: nodes[:1],
			Selected: at(node("n2", "zone=b"))}, "zone=b; zone=c", "zone=b; zone=c", nil},
		"late: the allowed topologies, the node's first": {Facts{Selected: at(node("n2", "zone=b")),
			Allowed: selectors("zone in c b a")}, "zone=a; zone=b; zone=c", "zone=b; zone=c; zone=a", nil},
		"late: a class may name less than the driver registers": {Facts{Selected: at(node("n2", "zone=b,rack=1")),
			Allowed: selectors("zone in a b")}, "zone=a; rack=1,zone=b", "rack=1,zone=b; zone=a", nil},
		"late: the pod can run in one of the allowed topologies": {Facts{
			Selected: at(node("n2", "provided-by=cloud,location=nbg1")), Allowed: selectors("provided-by in cloud")},
			"location=nbg1,provided-by=cloud", "location=nbg1,provided-by=cloud", nil},
		"late: several preferred places are different ones": {Facts{Selected: at(node("n2", "zone=b,disk=fast")),
			Allowed: selectors("zone in a b c", "zone in b")}, "zone=a; zone=c; disk=fast,zone=b",
			"disk=fast,zone=b; zone=a; zone=c", nil},
		"late: the class names the node's whole place, and part of another": {Facts{
			Selected: at(node("n2", "zone=b,rack=1")), Allowed: selectors("zone in a", "zone in b,rack in 1")},
			"zone=a; rack=1,zone=b", "rack=1,zone=b; zone=a", nil},
		"late: a class may name more than the driver registers": {Facts{Selected: at(node("n2", "zone=b")),
			Allowed: selectors("zone in b,rack in 1")}, "", "", ErrClass},
		"late: one of the terms has the driver's keys": {Facts{Selected: at(node("n2", "zone=b")),
			Allowed: selectors("rack in 1", "zone in a")}, "", "", ErrNode},
		"late: not allowed there": {Facts{Selected: at(node("n2", "zone=b")),
			Allowed: selectors("zone in a")}, "", "", ErrNode},
		"late: the driver is not on that node": {Facts{Nodes: nodes,
			Selected: at(without(node("n2", "zone=b")))}, "", "", ErrNode},
		"late: the driver reports no topology": {Facts{Nodes: []Node{keyless(node("n2", "")), without(node("n3", ""))},
			Selected: at(keyless(node("n2", "")))}, "", "", ErrKeys},
		"late: the driver reports topology on other nodes": {Facts{Nodes: nodes, Selected: at(keyless(node("n2", "")))},
			"", "", ErrNode},
		"immediate: the driver reports no topology": {Facts{Nodes: []Node{keyless(node("n1", "")), node("n2", "")}}, "",
			"", ErrKeys},
		"late: the node's labels are not there yet": {Facts{Nodes: nodes,
			Selected: at(unlabelled(node("n2", "zone=b")))}, "", "", ErrLabels},
		"late: left to the driver is for immediate binding": {Facts{Nodes: nodes[:1], Selected: at(nodes[0]),
			SkipImmediate: true}, "zone=c", "zone=c", nil},

		"strict: the node's place and no other": {Facts{Nodes: nodes, Selected: at(node("n2", "zone=b,rack=1")),
			Strict: true}, "rack=1,zone=b", "rack=1,zone=b", nil},
		"strict: allowed there": {Facts{Selected: at(node("n2", "zone=b")),
			Allowed: selectors("zone in a b"), Strict: true}, "zone=b", "zone=b", nil},
		"strict: not allowed there": {Facts{Selected: at(node("n2", "zone=b")),
			Allowed: selectors("zone in a"), Strict: true}, "", "", ErrNode},
		"strict: says nothing without a node": {Facts{Claim: "d-0", Nodes: nodes[:1], Strict: true}, "zone=c", "zone=c",
			nil},
		"strict: the driver is not on that node": {Facts{Selected: at(without(node("n2", "zone=b"))), Strict: true}, "",
			"", ErrNode},
		"strict: the node's labels are not there": {Facts{Selected: at(unlabelled(node("n2", "zone=b"))), Strict: true}, "",
			"", ErrLabels},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := Require(c.f)
			if requisite, preferred := show(got.GetRequisite()), show(got.GetPreferred()); requisite != c.requisite ||
				preferred != c.preferred || !errors.Is(err, c.err) {
				t.Errorf("requisite %q, preferred %q, %v", requisite, preferred, err)
			}
			if got != nil && len(got.Requisite) == 0 {
				t.Error("a requirement without places, which the CSI spec does not know")
			}
			c.f.Nodes = slices.Clone(c.f.Nodes)
			for range 5 {
				rand.Shuffle(len(c.f.Nodes), func(i, j int) { c.f.Nodes[i], c.f.Nodes[j] = c.f.Nodes[j], c.f.Nodes[i] })
				if again, _ := Require(c.f); !proto.Equal(again, got) {
					t.Errorf("with the nodes in another order: %v, before: %v", again, got)
				}
			}
			if !c.f.NeedsNodes() {
				c.f.Nodes = nil
				if blind, err := Require(c.f); !proto.Equal(blind, got) || !errors.Is(err, c.err) {
					t.Errorf("nodes are not needed, and without: %v, %v", blind, err)
				}
			}
		})
	}
}

func TestAllowed(t *testing.T) {
	cases := map[string]struct {
		selectors []string
		want      string
	}{
		"every combination is a place": {[]string{"zone in b a,rack in 2 1"},
			"rack=1,zone=a; rack=1,zone=b; rack=2,zone=a; rack=2,zone=b"},
		"selectors are alternatives":             {[]string{"zone in b", "region in r"}, "region=r; zone=b"},
		"the same place twice is one":            {[]string{"zone in a a", "zone in a"}, "zone=a"},
		"nowhere can be two values of one key":   {[]string{"zone in a b,zone in b c"}, "zone=b"},
		"no value is no place":                   {[]string{"zone in ,rack in 1"}, ""},
		"an empty selector selects nothing":      {[]string{"", "zone in a"}, "zone=a"},
		"fewer segments go first":                {[]string{"a in 1,b in 1", "zone in z"}, "zone=z; a=1,b=1"},
		"no selector":                            {nil, ""},
		"every key counts, in any order of them": {[]string{"b in 1,a in 1", "a in 1,b in 1"}, "a=1,b=1"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := show(toCSI(allowed(selectors(c.selectors...)))); got != c.want {
				t.Errorf("allowed = %q, want %q", got, c.want)
			}
		})
	}
}

func TestSegments(t *testing.T) {
	on := func(n Node) Node { n.Registered = true; return n }
	cases := map[string]struct {
		nodes []Node
		want  string
	}{
		"each place once": {[]Node{on(node("n1", "zone=b")), on(node("n2", "zone=a")),
			on(node("n3", "zone=b"))}, "zone=a; zone=b"},
		"by the keys of each node": {[]Node{on(node("n1", "zone=a")), on(node("n2", "zone=a,rack=1"))},
			"zone=a; rack=1,zone=a"},
		"where the labels are not there yet": {[]Node{on(unlabelled(node("n1", "zone=a")))}, ""},
		"where the driver is not":            {[]Node{without(node("n1", "zone=a")), node("n2", "zone=b")}, ""},
		"a node for which no places are known": {[]Node{on(without(node("n1", "zone=a"))), on(node("n2", "zone=b"))},
			"; zone=b"},
		"no node": {nil, ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var topologies []*csi.Topology
			for _, segments := range Segments(c.nodes) {
				topologies = append(topologies, &csi.Topology{Segments: segments})
			}
			if got := show(topologies); got != c.want {
				t.Errorf("Segments = %q, want %q", got, c.want)
			}
		})
	}
	if none, everywhere := Segments(nil), Segments([]Node{{Registered: true}}); len(none) != 0 || len(everywhere) != 1 ||
		everywhere[0] == nil {
		t.Errorf("%v, %v", none, everywhere)
	}
}

func TestSpread(t *testing.T) {
	for _, set := range []string{"data-web", "data-my-long-set", "web", "a-b-c-d"} {
		for n := 1; n <= 7; n++ {
			first := spread(set+"-0", n)
			for i := range 3 * n {
				if got := spread(fmt.Sprintf("%s-%d", set, i), n); got != (first+i)%n {
					t.Errorf("claim %d of %s prefers place %d of %d, want %d", i, set, got, n, (first+i)%n)
				}
			}
		}
	}
	// The hash is FNV-1 with 32 bits: 0x811c9dc5 for the empty text, and for "a" that value times 0x1000193 xor 'a'.
	hash := func(text string) uint32 {
		h := uint32(0x811c9dc5)
		for i := range len(text) {
			h = h*0x01000193 ^ uint32(text[i])
		}
		return h
	}
	cases := map[string]struct {
		claim, hashed string
		ordinal       uint32
	}{
		"a name goes by its hash":                       {"data", "data", 0},
		"a number after a dash is an ordinal":           {"data-7", "data", 7},
		"of set and claim only the set counts":          {"data-web-7", "web", 7},
		"a number too large is part of the name":        {"data-99999999999", "data-99999999999", 0},
		"a dash at the end":                             {"data-", "data-", 0},
		"a number that is signed is none":               {"data-+1", "data-+1", 0},
		"a name that is a number":                       {"42", "42", 0},
		"an ordinal at the limit wraps as upstream has": {"web-4294967295", "web", 4294967295},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got, want := spread(c.claim, 1000), int((hash(c.hashed)+c.ordinal)%1000); got != want {
				t.Errorf("spread = %d, want %d", got, want)
			}
		})
	}
}

func TestAffinity(t *testing.T) {
	topology := func(segments ...string) *csi.Topology {
		all := map[string]string{}
		for i := 0; i < len(segments); i += 2 {
			all[segments[i]] = segments[i+1]
		}
		return &csi.Topology{Segments: all}
	}
	cases := map[string]struct {
		accessible []*csi.Topology
		want       string
	}{
		"reachable from everywhere": {nil, "all"},
		"one place, keys in order":  {[]*csi.Topology{topology("zone", "a", "rack", "1")}, "rack=1,zone=a"},
		"several places": {[]*csi.Topology{topology("zone", "b"), topology("zone", "a")},
			"zone=b; zone=a"},
		"an empty topology is left out":            {[]*csi.Topology{topology(), nil, topology("zone", "a")}, "zone=a"},
		"where all say nothing, there is no limit": {[]*csi.Topology{topology(), nil}, "all"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got, affinity := "all", Affinity(c.accessible)
			if affinity != nil {
				var terms []string
				for _, term := range affinity.Required.NodeSelectorTerms {
					var expressions []string
					for _, e := range term.MatchExpressions {
						if e.Operator != v1.NodeSelectorOpIn {
							t.Errorf("operator %s", e.Operator)
						}
						expressions = append(expressions, e.Key+"="+strings.Join(e.Values, "|"))
					}
					terms = append(terms, strings.Join(expressions, ","))
				}
				got = strings.Join(terms, "; ")
			}
			if got != c.want {
				t.Errorf("nodes %q, want %q", got, c.want)
			}
		})
	}
}

func TestNodeOf(t *testing.T) {
	o := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{"zone": "a"}}}
	registered := &storagev1.CSINode{Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{
		{Name: "other", TopologyKeys: []string{"x"}}, {Name: "disk.csi.example.com", TopologyKeys: []string{"zone"}}}}}
	if n := NodeOf(o, registered, "disk.csi.example.com"); n.Name != "n" || n.Labels["zone"] != "a" || !n.Registered ||
		len(n.Keys) != 1 || n.Keys[0] != "zone" {
		t.Errorf("NodeOf = %+v", n)
	}
	if n := NodeOf(o, nil, "disk.csi.example.com"); n.Keys != nil {
		t.Errorf("without a CSINode: %+v", n)
	}
	if n := NodeOf(o, registered, "third"); n.Keys != nil || n.Registered {
		t.Errorf("not registered: %+v", n)
	}
}
