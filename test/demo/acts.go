//go:build unix

package main

const (
	demoCosts = "Needs Go; neither root nor containers. The first run compiles Kubernetes: 7 minutes on two\n" +
		"slow cores, and 3.5 GB of Go's caches. Later ones take seconds."
	tourCosts = "Needs Go and about 8 GB of Go's caches; neither root nor containers, with which the nodes\n" +
		"that are cut off are real. The first run compiles Kubernetes, twice, which takes minutes."
)

// firstAct is the demo, and the beginning of the tour.
func firstAct() act {
	a := act{about: "Shown on real objects: a Kubernetes API server with its controllers, a CSI driver with its\n" +
		"volumes as folders on disk, and csi-reclaimer between them."}
	for _, sc := range scenarios() {
		a.scenarios = append(a.scenarios, [2]string{sc.title, sc.ends})
	}
	return a
}

// laterActs are the rest of the tour.
func laterActs() []act {
	crashes := act{about: "Then a provisioner that is killed while it makes a volume."}
	for _, sc := range crashScenarios() {
		crashes.scenarios = append(crashes.scenarios, [2]string{sc.title, sc.ends})
	}
	guarded := act{about: "Then volume-guard beside an older Kubernetes, whose in-tree plugins have no such\nsidecar."}
	for _, sc := range guardScenarios() {
		guarded.scenarios = append(guarded.scenarios, [2]string{sc.title, sc.ends})
	}
	pods := act{about: "Then pods whose node is cut off, with volume-guard and without."}
	for _, sc := range podScenarios() {
		pods.scenarios = append(pods.scenarios, [2]string{sc.title, sc.ends})
	}
	locks := act{about: "Then Deployments that share a claim, with a lock and without."}
	for _, sc := range lockScenarios() {
		locks.scenarios = append(locks.scenarios, [2]string{sc.title, sc.ends})
	}
	sets := act{about: "Then StatefulSets that are scaled down, with volume-guard and without."}
	for _, sc := range setScenarios() {
		sets.scenarios = append(sets.scenarios, [2]string{sc.title, sc.ends})
	}
	return []act{crashes, guarded, pods, locks, sets}
}

// more names the tour and the tutorial.
func (p *printer) more() {
	p.head("make tour shows all the rest: a leak of external-provisioner, Kubernetes 1.30, nodes, fences, locks")
	p.say("make demo KEEP=1 leaves a cluster up, and says how to ask it why an object is still there.")
	p.say("docs/tutorials/demo.md is the tutorial.")
}
