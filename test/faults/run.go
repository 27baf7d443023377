//go:build unix

package faults

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/faults"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"github.com/csi-reclaimer/csi-reclaimer/test/faults/oracle"
	"github.com/csi-reclaimer/csi-reclaimer/test/faults/proxy"
	"github.com/csi-reclaimer/csi-reclaimer/test/faults/scenario"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
)

// Result is how a scenario ended.
type Result struct {
	Scenario scenario.Scenario
	// End is the state of each volume: of its PV, and whether the volume is on disk.
	End map[string]string
	// Findings are the oracle's findings.
	Findings []oracle.Finding
	// Writes are the sidecar's writes to PVs and claims as they came to the connection, Calls its calls that the driver
	// received, by method, Crashes how often the sidecar was killed, and Faults the requests that rules applied to.
	Writes          []proxy.Request
	Calls           map[string]int
	Crashes, Faults int
	Took            time.Duration
	// Notes are the steps, and the events of the programs and of the connection.
	Notes []string
	// Log is the end of the sidecar's log where something was found.
	Log string
}

// barrierVolume is the volume whose deletion shows that all earlier decisions are carried out.
const barrierVolume = "fence"

// Run plays a scenario and judges it. The error is not nil if a step failed or its awaited state did not come. Result
// then holds the oracle's findings up to that step.
func (b *Bench) Run(ctx context.Context, sc scenario.Scenario) (r Result, err error) {
	began := time.Now()
	r = Result{Scenario: sc}
	if err := sc.Validate(); err != nil {
		return r, err
	}
	env, err := b.newEnvironment(ctx, sc.Args)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, env.tearDown()) }()
	var end context.CancelFunc
	env.steps, end = context.WithCancel(ctx)
	for i, step := range sc.Steps {
		if err = env.play(ctx, step); err != nil {
			err = fmt.Errorf("scenario %s: step %d %s: %w", sc.Name, i+1, step, err)
			break
		}
	}
	end()
	env.background.Wait()
	if err == nil {
		err = env.settle(ctx)
	}
	if judged := env.judge(ctx, &r); judged != nil {
		err = errors.Join(err, judged)
	}
	r.Took = time.Since(began)
	return r, err
}

// settle ends all that lasts, and returns once everything is at rest, or does not come to rest.
func (env *environment) settle(ctx context.Context) error {
	env.note("scenario: the end; all faults are over")
	env.heal()
	env.driver.start()
	_ = env.supervisor.car.Resume() // it may not run
	env.supervisor.want()
	bounded, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := env.driver.SetFaults(bounded, faults.Plan{}); err != nil {
		// The driver is being started; a new one has no faults.
		env.note("the driver's faults: %v", err)
	}
	if err := env.supervisor.waitReady(bounded); err != nil {
		return err
	}
	for range 2 { // the second time after the barrier, which gives late events time
		if err := env.rest(bounded); err != nil {
			break // the oracle reports stuck objects
		}
		if env.vols[barrierVolume] != nil {
			break
		}
		if err := env.barrier(bounded); err != nil {
			env.note("the fence: %v", err)
		}
	}
	return nil
}

// barrier makes a volume, or has it provisioned, and sees it reclaimed.
func (env *environment) barrier(ctx context.Context) error {
	env.barrierAt = time.Now()
	step := scenario.Step{Do: scenario.Make, Volume: barrierVolume}
	if len(env.claims) > 0 {
		step.Kind = scenario.Provisioned
	}
	if err := env.make(ctx, step); err != nil {
		return err
	}
	vol := env.vols[barrierVolume]
	env.note("the fence is made")
	for _, condition := range []string{"protected", "bound"} {
		if err := env.waitVolume(ctx, vol, scenario.Step{For: condition}); err != nil {
			return err
		}
	}
	env.note("the fence is protected")
	if err := vol.DeleteClaim(ctx); err != nil {
		return err
	}
	defer env.note("the fence is gone")
	if err := vol.WaitClaimGone(ctx); err != nil {
		return err
	}
	return vol.WaitGone(ctx)
}

// beforeBarrier reports whether something belongs to the scenario.
func (env *environment) beforeBarrier(at time.Time) bool {
	return env.barrierAt.IsZero() || at.Before(env.barrierAt)
}

// judge collects the history and fills in the result.
func (env *environment) judge(ctx context.Context, r *Result) error {
	c, err := env.collect(ctx)
	if err != nil {
		return fmt.Errorf("judge scenario %s: %w", r.Scenario.Name, err)
	}
	r.Findings = oracle.Judge(c)
	r.Calls = map[string]int{}
	for _, call := range c.Calls {
		if env.beforeBarrier(call.Received) {
			r.Calls[call.Method]++
		}
	}
	for _, note := range c.Notes {
		r.Notes = append(r.Notes, note.At.Format("15:04:05.000 ")+note.Text)
	}
	_, r.Crashes = env.supervisor.history()
	r.Faults = env.applied + env.proxy.Applied()
	for _, q := range env.proxy.Requests() {
		if q.Write() && strings.HasPrefix(q.Resource, "persistentvolume") && env.beforeBarrier(q.Received) {
			r.Writes = append(r.Writes, q)
		}
	}
	if err := env.judgeEnds(ctx, r, c); err != nil {
		return err
	}
	log, err := os.ReadFile(env.supervisor.car.LogPath())
	if err != nil {
		return err
	}
	if found := broken.Find(log); found != nil {
		r.Findings = append(r.Findings, oracle.Finding{Kind: "broken", What: "the sidecar's log says " + string(found),
			History: []string{string(log)}})
	}
	if len(r.Findings) > 0 {
		r.Log = env.supervisor.car.LogTail(60)
	}
	return nil
}

// judgeEnds records how each volume of the scenario ends, and compares it with the scenario's want.
func (env *environment) judgeEnds(ctx context.Context, r *Result, c oracle.Case) error {
	r.End = map[string]string{}
	for _, volume := range env.order {
		if volume == barrierVolume {
			continue
		}
		state, err := env.state(ctx, volume, c.OnDisk)
		if err != nil {
			return err
		}
		r.End[volume] = state
		if finding, wrong := unwanted(r.Scenario.Want[volume], env.vols[volume], state, c); wrong {
			r.Findings = append(r.Findings, finding)
		}
	}
	return nil
}

// broken matches log lines that are wrong in any scenario.
var broken = regexp.MustCompile(`DATA RACE|panic:|ended in a panic|fatal error:`)

func unwanted(want scenario.End, vol *objects.Volume, state string, c oracle.Case) (oracle.Finding, bool) {
	deletions, there := count(c.Calls, vol), has(c.OnDisk, vol)
	gone := state == "gone, volume gone" || state == "gone, volume gone, claim gone"
	bound := there && strings.HasPrefix(state, string(v1.VolumeBound)) && strings.HasSuffix(state,
		", claim "+string(v1.ClaimBound))
	wrong := want == scenario.Deleted && !gone || want == scenario.Bound && !bound || want == scenario.Kept && (!there ||
		deletions > 0)
	what := fmt.Sprintf("it was to end %s, and is: %s, after %d DeleteVolume calls", want, state, deletions)
	finding := oracle.Finding{Kind: "unwanted end", PV: vol.Name, What: what}
	if wrong {
		finding.History = oracle.History(c, oracle.Object{Kind: oracle.PV, Name: vol.Name, Handle: vol.Handle})
	}
	return finding, wrong
}

// state describes how a volume is, in words that do not change from run to run.
func (env *environment) state(ctx context.Context, volume string, onDisk map[string]string) (string, error) {
	vol, claim := env.vols[volume], env.claims[volume]
	pv, err := vol.PV(ctx)
	if err != nil {
		return "", err
	}
	text := objects.Describe(pv) + ", volume gone"
	if has(onDisk, vol) {
		text = objects.Describe(pv) + ", volume there"
	}
	if claim == nil {
		return text, nil
	}
	now, err := claim.Get(ctx)
	switch {
	case err != nil:
		return "", err
	case now == nil:
		return text + ", claim gone", nil
	}
	text += ", claim " + string(now.Status.Phase)
	if now.DeletionTimestamp != nil {
		text += ", terminating"
	}
	return text, nil
}

// collect gathers the oracle's input.
func (env *environment) collect(ctx context.Context) (c oracle.Case, err error) {
	lives, crashes := env.supervisor.history()
	c = oracle.Case{
		Driver: env.driver.Name(), Finalizer: volume.Finalizer, User: env.user, Timeout: callTimeout,
		ClaimsWatched: true, // the sidecar provisions
		Processes:     lives, MayLeak: env.mayLeak, Events: map[string]int{}, ClaimEvents: map[string]int{},
		WriteBudget: oracle.Budget{}, EventBudget: oracle.Budget{}, CallBudget: oracle.Budget{}, ClaimBudget: oracle.Budget{},
	}
	if !env.lagging.IsZero() {
		c.Lags = []oracle.Span{{From: env.lagging, To: time.Now()}}
	}
	if c.Now, err = env.objects(ctx); err != nil {
		return c, err
	}
	bounded, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if c.Seen, err = env.recorder.seen(bounded, c.Now, env.owns); err != nil {
		return c, err
	}
	if c.Requests, err = oracle.ReadAudit(env.cluster.AuditLog(), env.token); err != nil {
		return c, err
	}
	if c.Calls, err = env.calls(scenario.CreateVolume, scenario.DeleteVolume); err != nil {
		return c, err
	}
	if c.OnDisk, err = env.onDisk(); err != nil {
		return c, err
	}
	events, err := env.eventCounts(ctx)
	if err != nil {
		return c, err
	}
	for volume, vol := range env.vols {
		if c.Events[vol.Name], err = env.events(ctx, vol.Name); err != nil {
			return c, err
		}
		if claim := env.claims[volume]; claim != nil {
			c.ClaimEvents[vol.Name] = events[string(claim.UID)]
		}
		env.budget(c, volume, crashes)
	}
	env.mu.Lock()
	defer env.mu.Unlock()
	c.Notes = append(c.Notes, env.notes...)
	for _, q := range env.proxy.Requests() {
		if q.Rule != "" {
			c.Notes = append(c.Notes, oracle.Note{At: q.Received, Text: "line: " + q.String()})
		}
	}
	return c, nil
}

// owns reports whether a version belongs to one of the scenario's objects. An attachment does not name its volume.
func (env *environment) owns(o oracle.Object) bool {
	return o.Namespace == env.token || o.Driver == env.driver.Name() && o.Kind == oracle.PV || o.Kind == oracle.Attachment
}

// budget computes the justified writes, Events and calls: those of a PV's whole life, and more for each step that
// concerns it, each fault and each process.
func (env *environment) budget(c oracle.Case, volume string, crashes int) {
	name := env.vols[volume].Name
	reasons := 2*env.touched[volume] + env.applied + env.proxy.Applied() + 2*crashes
	c.WriteBudget[name], c.EventBudget[name] = 3+reasons, 3+reasons
	// A driver that fails for a time is asked again twice a second (--retry-interval-max).
	c.CallBudget[name] = 3 + reasons + int(time.Since(env.began)/(500*time.Millisecond))
	c.ClaimBudget[name] = c.CallBudget[name]
}

// events counts the sidecar's Events about a PV.
func (env *environment) events(ctx context.Context, pv string) (n int, err error) {
	list, err := env.client.CoreV1().Events(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{
		FieldSelector: fields.Set{"involvedObject.name": pv, "source": account + "/" + env.driver.Name()}.String(),
	})
	if err != nil {
		return 0, err
	}
	for _, e := range list.Items {
		n += int(max(e.Count, 1))
	}
	return n, nil
}
