//go:build model

package claims

import (
	"fmt"
	"reflect"
	"strings"
)

// World names bounds: what there is, and how often what can happen does.
type World struct {
	// Name is how it is called in tables and on the command line.
	Name string
	// About says in a sentence what it is for.
	About string
	// Claims are the names of one or two claims. The first is there in the beginning; of two with
	// one name, the second can come when the first is gone.
	Claims []string
	// Short: so few characters of the UID are in a volume's name that all claims have the same.
	Short bool
	// NoFinalizer: claims are not held.
	NoFinalizer bool
	Replicas    int
	// Lag is by how many changes each watch may be behind; 0: caches are always up to date.
	Lag    int
	Budget Budget
	// Deep worlds are explored only when asked for.
	Deep bool
}

// Budget is how often each thing may happen in one history.
type Budget struct {
	// What users do. Strip: the finalizer is taken off by hand. BindElsewhere: the claim finds another
	// PV. TakeName: a PV of another claim and volume gets the name of a claim's PV.
	DeleteClaim, CreateClaim, DeleteClass, CreateClass, DeletePV, Strip, BindElsewhere, TakeName uint8
	// What breaks: processes that end, and those that go on for a while although another leads;
	// calls to the API server and the driver of which nothing is heard, done or not; a driver that
	// refuses, or makes another volume than was asked for; processes that are slow.
	Crash, Overlap, API, RPC, Refuse, Spoil, Slow uint8
}

// Worlds are the bounds that are explored.
func Worlds() []World {
	one := []string{"data"}
	worlds := []World{
		{
			Name: "claim", About: "a claim that is deleted while its volume is made, calls that fail or lose their answer, a process that ends",
			Claims: one, Lag: 1,
			Budget: Budget{DeleteClaim: 1, Crash: 1, API: 1, RPC: 1},
		},
		{
			Name: "lost answers", About: "calls of the API server that fail or lose their answer, twice", Claims: one, Lag: 1,
			Budget: Budget{DeleteClaim: 1, API: 2},
		},
		{
			Name: "claim anew", About: "a claim that is deleted and made again under its name",
			Claims: []string{"data", "data"}, Lag: 1,
			Budget: Budget{DeleteClaim: 1, CreateClaim: 1, RPC: 1},
		},
		{
			Name: "class", About: "a StorageClass that is deleted and made again while a volume is made", Claims: one, Lag: 1,
			Budget: Budget{DeleteClaim: 1, DeleteClass: 1, CreateClass: 1, RPC: 1, Crash: 1},
		},
		{
			Name: "PV deleted", About: "a PV that is deleted as soon as it is there", Claims: one, Lag: 1,
			Budget: Budget{DeleteClaim: 1, DeletePV: 1, API: 1},
		},
		{
			Name: "name taken", About: "a PV of another claim and volume under the claim's name for its PV, for a while", Claims: one, Lag: 1,
			Budget: Budget{DeleteClaim: 1, TakeName: 1, DeletePV: 1, RPC: 1},
		},
		{
			Name: "refused", About: "a driver that refuses, also after an outcome that is not known, and after a restart", Claims: one, Lag: 1,
			Budget: Budget{DeleteClaim: 1, Refuse: 2, RPC: 1, Crash: 1},
		},
		{
			Name: "not as ordered", About: "a driver that makes another volume than was asked for", Claims: one, Lag: 1,
			Budget: Budget{DeleteClaim: 1, Spoil: 1, RPC: 1, Crash: 1, Slow: 1},
		},
		{
			Name: "slow", About: "a process that stalls between its look and its call", Claims: one, Lag: 1,
			Budget: Budget{DeleteClaim: 1, RPC: 1, API: 1, Slow: 1},
		},
		{
			Name: "bound elsewhere", About: "a claim that finds another PV while its volume is made", Claims: one, Lag: 1,
			Budget: Budget{DeleteClaim: 1, BindElsewhere: 1, RPC: 1, API: 1},
		},
		{
			Name: "by hand", About: "somebody takes the finalizer off", Claims: one, Lag: 1,
			Budget: Budget{DeleteClaim: 1, Strip: 1, RPC: 1, API: 1},
		},
		{
			Name: "no finalizer", About: "claims are not held", Claims: one, Lag: 1, NoFinalizer: true,
			Budget: Budget{DeleteClaim: 1, RPC: 1, API: 1},
		},
		{
			Name: "one name", About: "two claims whose volumes have one name, and which nothing holds", Claims: []string{"data", "logs"}, Short: true, NoFinalizer: true,
			Budget: Budget{DeleteClaim: 1, CreateClaim: 1, RPC: 1},
		},
		{
			Name: "one name, late caches", About: "two claims whose volumes have one name, and caches that lag", Claims: []string{"data", "logs"}, Short: true, NoFinalizer: true, Lag: 1,
			Budget: Budget{DeleteClaim: 1, CreateClaim: 1},
		},
		{
			Name: "claim, replicas", About: "two replicas, of which the leading one ends", Claims: one, Replicas: 2, Lag: 1,
			Budget: Budget{DeleteClaim: 1, Crash: 1, RPC: 1},
		},
		{
			Name: "claim, two leaders", About: "a leader that does not notice that another leads", Claims: one, Replicas: 2, Lag: 1,
			Budget: Budget{DeleteClaim: 1, Overlap: 1},
		},
	}
	worlds = append(worlds, deepWorlds()...)
	for i := range worlds {
		worlds[i].Replicas = max(worlds[i].Replicas, 1)
	}
	return worlds
}

// deepWorlds are larger: for a night, not for each change.
func deepWorlds() []World {
	one := []string{"data"}
	return []World{
		{
			Name: "deep: claim", About: "caches that lag by more, while a claim is deleted and everything breaks", Deep: true, Claims: one, Lag: 2,
			Budget: Budget{DeleteClaim: 1, Crash: 1, API: 1, RPC: 1},
		},
		{
			Name: "deep: claim anew", About: "a claim that is made again under its name, and calls that fail", Deep: true,
			Claims: []string{"data", "data"}, Lag: 1,
			Budget: Budget{DeleteClaim: 1, CreateClaim: 1, API: 1, RPC: 1},
		},
		{
			Name: "deep: PV deleted", About: "a PV that is deleted as soon as it is there, and a process that ends", Deep: true, Claims: one, Lag: 2,
			Budget: Budget{DeleteClaim: 1, DeletePV: 1, API: 1, Crash: 1},
		},
		{
			Name: "deep: one name", About: "two claims whose volumes have one name, held, and calls that fail", Deep: true, Claims: []string{"data", "logs"}, Short: true,
			Budget: Budget{DeleteClaim: 1, CreateClaim: 1, RPC: 1},
		},
		{
			Name: "deep: claim, two leaders", About: "a leader that does not notice that another leads, and calls that fail", Deep: true, Claims: one, Replicas: 2, Lag: 1,
			Budget: Budget{DeleteClaim: 1, Overlap: 1, API: 1, RPC: 1},
		},
	}
}

// Bounds says in short what is in the world.
func (w *World) Bounds() string {
	parts := []string{"claims " + strings.Join(w.Claims, " and "), fmt.Sprintf("%d replica, lag %d", w.Replicas, w.Lag)}
	if w.Short {
		parts = append(parts, "one volume name")
	}
	if w.NoFinalizer {
		parts = append(parts, "no finalizer")
	}
	budget := reflect.ValueOf(w.Budget)
	for i := range budget.NumField() {
		if n := budget.Field(i).Uint(); n > 0 {
			parts = append(parts, fmt.Sprintf("%s %d", budget.Type().Field(i).Name, n))
		}
	}
	return strings.Join(parts, ", ")
}
