//go:build unix

package faults

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/faults"
	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/ledger"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"github.com/csi-reclaimer/csi-reclaimer/test/faults/proxy"
	"github.com/csi-reclaimer/csi-reclaimer/test/faults/scenario"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
)

// play does one step.
func (env *environment) play(ctx context.Context, step scenario.Step) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	env.note("scenario: %s", step)
	if step.Volume != "" {
		env.touched[step.Volume]++
	}
	switch step.Do {
	case scenario.Wait, scenario.Pass, scenario.Rest:
		return env.wait(ctx, step)
	case scenario.Kill, scenario.Start, scenario.StayDown, scenario.Pause, scenario.Resume, scenario.KillDriver,
		scenario.StartDriver, scenario.CrashAtCall:
		return env.playProgram(ctx, step)
	case scenario.API, scenario.Driver, scenario.Hold, scenario.Release, scenario.Cut, scenario.Freeze,
		scenario.Partition, scenario.Heal, scenario.Mark:
		return env.playProxy(ctx, step)
	default:
		err := env.playUser(ctx, step)
		if apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err) {
			env.note("too late: %v", err)
			return nil
		}
		return err
	}
}

// playUser plays a step of a user.
func (env *environment) playUser(ctx context.Context, step scenario.Step) error {
	vol := env.vols[step.Volume]
	switch step.Do {
	case scenario.Make:
		return env.make(ctx, step)
	case scenario.MakeClass:
		return env.makeClass(ctx, step.Volume)
	case scenario.DeleteClass:
		return env.deleteClass(ctx, step.Volume)
	case scenario.DeleteClaim:
		return vol.DeleteClaim(ctx)
	case scenario.DeletePV:
		return vol.DeletePV(ctx)
	case scenario.SetPolicy:
		return vol.SetPolicy(ctx, v1.PersistentVolumeReclaimPolicy(step.Policy))
	case scenario.RecreateClaim:
		return env.recreateClaim(ctx, vol, func(spec *v1.PersistentVolumeClaimSpec) {
			// No PV has this label, so that the PV controller binds the claim only to a PV reserved for it.
			spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"example.com/none": ""}}
		})
	case scenario.RestoreClaim:
		return env.recreateClaim(ctx, vol, func(spec *v1.PersistentVolumeClaimSpec) { spec.VolumeName = vol.Name })
	case scenario.BindAgain:
		return env.bindAgain(ctx, vol)
	case scenario.TakeBack:
		return env.patch(ctx, vol, types.MergePatchType, `{"spec":{"claimRef":{"uid":null,"resourceVersion":null}}}`)
	case scenario.StripFinalizer:
		return env.patch(ctx, vol, types.StrategicMergePatchType,
			fmt.Sprintf(`{"metadata":{"$deleteFromPrimitiveList/finalizers":[%q]}}`, volume.Finalizer))
	case scenario.Attach:
		_, err := env.client.StorageV1().VolumeAttachments().Create(ctx, &storagev1.VolumeAttachment{
			ObjectMeta: metav1.ObjectMeta{Name: vol.Name},
			Spec: storagev1.VolumeAttachmentSpec{
				Attacher: env.driver.Name(), NodeName: "a-node-of-another-cluster",
				Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &vol.Name},
			},
		}, metav1.CreateOptions{})
		return err
	case scenario.Detach:
		return env.client.StorageV1().VolumeAttachments().Delete(ctx, vol.Name, metav1.DeleteOptions{})
	default:
		return errors.New("no such step")
	}
}

func (env *environment) make(ctx context.Context, step scenario.Step) (err error) {
	vol := &objects.Volume{}
	if step.Kind == scenario.Provisioned {
		vol, err = env.makeClaim(ctx, step)
	} else {
		vol, err = env.makeVolume(ctx, step)
	}
	if err != nil {
		return err
	}
	env.vols[step.Volume] = vol
	env.order = append(env.order, step.Volume)
	env.mayLeak[vol.Name] = step.MayLeak
	return nil
}

func (env *environment) makeVolume(ctx context.Context, step scenario.Step) (*objects.Volume, error) {
	spec := objects.Spec{
		Name: env.name(step.Volume), Dynamic: step.Kind != scenario.Static, Unclaimed: step.Unclaimed, Policy: policyOf(step),
	}
	if step.Of != "" {
		spec.Handle = env.vols[step.Of].Handle
	}
	return env.maker.Make(ctx, spec)
}

func policyOf(step scenario.Step) v1.PersistentVolumeReclaimPolicy {
	return v1.PersistentVolumeReclaimPolicy(cmp.Or(step.Policy, string(v1.PersistentVolumeReclaimDelete)))
}

// makeClaim makes a claim of a class of its own, which the sidecar is to provision.
func (env *environment) makeClaim(ctx context.Context, step scenario.Step) (*objects.Volume, error) {
	env.policies[step.Volume] = policyOf(step)
	if err := env.makeClass(ctx, step.Volume); err != nil {
		return nil, err
	}
	claim, err := env.maker.MakeClaim(ctx, objects.ClaimSpec{Name: env.name(step.Volume), Class: env.name(step.Volume)})
	if err != nil {
		return nil, err
	}
	env.claims[step.Volume] = claim
	return claim.Volume(provisionedName + string(claim.UID)), nil
}

// provisionedName begins the names of provisioned PVs and volumes.
const provisionedName = "pvc-"

func (env *environment) makeClass(ctx context.Context, volume string) error {
	_, err := env.maker.MakeClass(ctx, objects.Class{Name: env.name(volume), Policy: env.policies[volume]})
	return err
}

func (env *environment) deleteClass(ctx context.Context, volume string) error {
	return env.client.StorageV1().StorageClasses().Delete(ctx, env.name(volume), metav1.DeleteOptions{})
}

func (env *environment) patchClaim(ctx context.Context, volume, patch string) error {
	_, err := env.client.CoreV1().PersistentVolumeClaims(env.token).Patch(ctx, env.name(volume), types.MergePatchType,
		[]byte(patch), metav1.PatchOptions{})
	return err
}

func (env *environment) recreateClaim(ctx context.Context, vol *objects.Volume,
	change func(*v1.PersistentVolumeClaimSpec)) error {
	noClass := ""
	claim := &v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: vol.ClaimName},
		Spec: v1.PersistentVolumeClaimSpec{
			StorageClassName: &noClass, AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
			Resources: v1.VolumeResourceRequirements{Requests: v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Mi")}},
		},
	}
	change(&claim.Spec)
	_, err := env.client.CoreV1().PersistentVolumeClaims(env.token).Create(ctx, claim, metav1.CreateOptions{})
	return err
}

func (env *environment) bindAgain(ctx context.Context, vol *objects.Volume) error {
	claim, err := env.client.CoreV1().PersistentVolumeClaims(env.token).Get(ctx, vol.ClaimName, metav1.GetOptions{})
	if err != nil {
		return err
	}
	return env.patch(ctx, vol, types.StrategicMergePatchType,
		fmt.Sprintf(`{"spec":{"claimRef":{"uid":%q,"resourceVersion":null}}}`, claim.UID))
}

func (env *environment) patch(ctx context.Context, vol *objects.Volume, kind types.PatchType, patch string) error {
	_, err := env.client.CoreV1().PersistentVolumes().Patch(ctx, vol.Name, kind, []byte(patch), metav1.PatchOptions{})
	return err
}

// playProgram plays a step of the sidecar or the driver.
func (env *environment) playProgram(ctx context.Context, step scenario.Step) error {
	switch step.Do {
	case scenario.Kill:
		env.supervisor.kill(false)
	case scenario.Start:
		env.supervisor.want()
		return env.supervisor.waitReady(ctx)
	case scenario.StayDown:
		env.supervisor.stayDown()
	case scenario.Pause:
		env.lags()
		return unlessEnded(env.supervisor.car.Pause())
	case scenario.Resume:
		return unlessEnded(env.supervisor.car.Resume())
	case scenario.KillDriver:
		env.driver.kill()
	case scenario.StartDriver:
		env.driver.start()
	case scenario.CrashAtCall:
		return env.crashAtCall(ctx, cmp.Or(step.Method, scenario.DeleteVolume), max(step.Nth, 1), step.At)
	default:
		return errors.New("no such step")
	}
	return nil
}

// unlessEnded drops the error about a process that has ended: a rule for calls may have killed it at any time.
func unlessEnded(err error) error {
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}

// slow is how long the driver takes for a call at which the sidecar is to be killed: longer than it takes to notice.
const slow = 300 * time.Millisecond

// crashAtCall has the sidecar killed at its nth call of a method from now on.
func (env *environment) crashAtCall(ctx context.Context, method string, nth int, at string) error {
	delay := faults.Rule{Method: method, VolumeName: onlyTheSidecars(method), Nth: nth, Action: faults.Delay,
		Delay: faults.Duration(callTimeout), AfterWork: at == scenario.AtDone}
	if at == scenario.AtAnswered {
		delay.Delay = faults.Duration(slow)
	}
	before, err := env.calls(method)
	if err != nil {
		return err
	}
	if err := env.driver.plan(ctx, faults.Plan{Rules: []faults.Rule{delay}}); err != nil {
		return err
	}
	nth += len(before)
	happened := func(ctx context.Context, is func(ledger.Call) bool) error {
		_, err := env.driver.WaitCalls(ctx, func(calls []ledger.Call) bool {
			calls = bySidecar(calls)
			return len(calls) >= nth && is(calls[nth-1])
		}, method)
		return err
	}
	env.background.Go(func() { //nolint:contextcheck // it continues after the step, to the end of the scenario
		var err error
		var last func()
		switch at {
		case scenario.AtReceived:
			err = happened(env.steps, func(ledger.Call) bool { return true })
		case scenario.AtDone:
			err = happened(env.steps, func(c ledger.Call) bool { return !c.Done.IsZero() || c.Lost })
		case scenario.AtAnswered:
			err = happened(env.steps, func(ledger.Call) bool { return true })
			last = func() {
				// The driver may have other faults, and never answer. Until then, the connection is blocked.
				ctx, cancel := context.WithTimeout(env.steps, callTimeout)
				defer cancel()
				if err := happened(ctx, func(c ledger.Call) bool { return !c.Answered.IsZero() || c.Lost }); err != nil {
					env.note("the call is not answered: %v", err)
				}
			}
		}
		if err != nil {
			env.note("no crash at a call: %v", err)
			return
		}
		env.proxy.Crash(last)
	})
	return nil
}

// onlyTheSidecars is the pattern for names of volumes that excludes the scenario's own CreateVolume calls from a rule.
func onlyTheSidecars(method string) string {
	if method == scenario.CreateVolume {
		return provisionedName + "*"
	}
	return ""
}

// calls returns the calls that the driver received from the sidecar, of the given methods.
func (env *environment) calls(methods ...string) ([]ledger.Call, error) {
	calls, err := env.driver.Calls(methods...)
	return bySidecar(calls), err
}

// bySidecar returns the calls without the scenario's own.
func bySidecar(calls []ledger.Call) []ledger.Call {
	return slices.DeleteFunc(slices.Clone(calls), func(c ledger.Call) bool {
		return c.Method == scenario.CreateVolume && !strings.HasPrefix(c.Name, provisionedName)
	})
}

// playProxy plays a step that changes the connection or the driver's behaviour.
func (env *environment) playProxy(ctx context.Context, step scenario.Step) (err error) {
	switch step.Do {
	case scenario.API:
		return env.setRules(step.Rules)
	case scenario.Driver:
		return env.setCalls(ctx, step.Calls)
	case scenario.Hold:
		env.lags()
		env.proxy.Hold(step.Resource)
	case scenario.Release:
		env.proxy.Release(step.Resource)
	case scenario.Cut:
		env.lags()
		if env.proxy.Cut(step.Resource) == 0 {
			env.note("there was no watch of %s to cut", step.Resource)
		}
	case scenario.Freeze:
		env.lags()
		env.proxy.Freeze()
	case scenario.Partition:
		env.lags()
		env.proxy.Partition()
	case scenario.Heal:
		env.heal()
	case scenario.Mark:
		env.mark, err = env.version(ctx)
	default:
		err = errors.New("no such step")
	}
	return err
}

// setCalls replaces the driver's fault plan. The rules name volumes as the scenario does.
func (env *environment) setCalls(ctx context.Context, rules []faults.Rule) error {
	rules = slices.Clone(rules)
	for i := range rules {
		switch r := &rules[i]; {
		case r.VolumeName == "":
			r.VolumeName = onlyTheSidecars(r.Method)
		case env.vols[r.VolumeName] != nil:
			r.VolumeName = env.vols[r.VolumeName].Name
		default:
			r.VolumeName = env.name(r.VolumeName)
		}
	}
	return env.driver.plan(ctx, faults.Plan{Rules: rules})
}

// setRules replaces the proxy's rules. The rules name objects as the scenario does.
func (env *environment) setRules(rules []proxy.Rule) error {
	env.applied += env.proxy.Applied()
	rules = slices.Clone(rules)
	for i := range rules {
		r := &rules[i]
		if r.Object != "" {
			r.Object = env.name(r.Object)
		}
		if r.Version == scenario.MarkVersion {
			r.Version = env.mark
		}
		if r.Verb == "" || r.Verb == "watch" || r.Verb == "list" || r.Verb == "read" {
			env.lags()
		}
	}
	return env.proxy.SetRules(rules...)
}

// heal makes the connection a good one.
func (env *environment) heal() {
	env.applied += env.proxy.Applied()
	env.proxy.Heal()
}

// lags notes that from now on a watch of the sidecar may be held up.
func (env *environment) lags() {
	if env.lagging.IsZero() {
		env.lagging = time.Now()
	}
}

// version returns the resourceVersion of the PVs.
func (env *environment) version(ctx context.Context) (string, error) {
	list, err := env.client.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return "", err
	}
	return list.ResourceVersion, nil
}
