package pvc

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Each operand of a condition counts by itself.

func TestPodWithoutGracePeriodIsNotShutDown(t *testing.T) {
	if PodOf(&v1.Pod{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &metav1.Time{}}}).ShutDown {
		t.Error("a pod that does not say how much grace it has is shut down")
	}
}

func TestOwnerUsesNamedClaims(t *testing.T) {
	c := claim("c")
	c.Owner = "p"
	pod := Pod{Namespace: c.Namespace, Name: "p", UID: "p", Scheduled: true}
	if pod.uses(c) {
		t.Error("a pod uses a claim that no volume of it names")
	}
	pod.UID, c.Owner, pod.Ephemeral = "", "", []string{c.Name}
	if pod.uses(c) {
		t.Error("a pod uses a claim without owner as its own")
	}
}

func TestPendingListIsNoReading(t *testing.T) {
	var never time.Time
	b := newBatches()
	b.join("ns", asks(1))
	if b.reading(claim("1"), never.Add(time.Second)).Made {
		t.Error("a list that was not made shows something")
	}
	if asked, wait := b.take("other", at(0)); len(asked) != 0 || wait != 0 {
		t.Error("nobody waits, and a list is sent")
	}
}

func TestNoWaitWithoutAsks(t *testing.T) {
	b := newBatches()
	b.join("ns", asks(1))
	if _, wait := b.take("ns", at(0)); wait != 0 {
		t.Fatal("the first waits")
	}
	if _, wait := b.take("ns", at(1)); wait != 0 {
		t.Error("there is a wait where nobody asks")
	}
}

func TestExpiredAnswerIsForgotten(t *testing.T) {
	b := newBatches()
	b.join("ns", asks(1))
	asked, _ := b.take("ns", at(0))
	b.settle("ns", asked, shown(1))
	b.settle("unknown", nil, shown(1))
	if len(b.pace) != 1 {
		t.Errorf("%d namespaces have a pace", len(b.pace))
	}
	if b.reading(claim("1"), at(0).Add(time.Hour)).Made || len(b.answers) != 0 {
		t.Error("an old answer counts, or stays")
	}
}
