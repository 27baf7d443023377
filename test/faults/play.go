//go:build unix

package faults

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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
	"github.com/csi-reclaimer/csi-reclaimer/test/storage"
)

// play does one step.
func (s *stage) play(ctx context.Context, step scenario.Step) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	s.note("story: %s", step)
	if step.Volume != "" {
		s.touched[step.Volume]++
	}
	switch step.Do {
	case scenario.Wait, scenario.Pass, scenario.Rest:
		return s.wait(ctx, step)
	case scenario.Kill, scenario.Start, scenario.StayDown, scenario.Pause, scenario.Resume, scenario.KillDriver, scenario.StartDriver, scenario.CrashAtCall:
		return s.playProgram(ctx, step)
	case scenario.API, scenario.Driver, scenario.Hold, scenario.LetGo, scenario.Cut, scenario.Freeze, scenario.Partition, scenario.Heal, scenario.Mark:
		return s.playLine(ctx, step)
	default:
		err := s.playUser(ctx, step)
		if apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err) {
			s.note("too late: %v", err)
			return nil
		}
		return err
	}
}

// playUser does what a user does.
func (s *stage) playUser(ctx context.Context, step scenario.Step) error {
	vol := s.vols[step.Volume]
	switch step.Do {
	case scenario.Make:
		return s.make(ctx, step)
	case scenario.MakeClass:
		return s.makeClass(ctx, step.Volume)
	case scenario.DeleteClass:
		return s.deleteClass(ctx, step.Volume)
	case scenario.DeleteClaim:
		return vol.DeleteClaim(ctx)
	case scenario.DeletePV:
		return vol.DeletePV(ctx)
	case scenario.SetPolicy:
		return vol.SetPolicy(ctx, v1.PersistentVolumeReclaimPolicy(step.Policy))
	case scenario.RecreateClaim:
		return s.recreateClaim(ctx, vol, func(spec *v1.PersistentVolumeClaimSpec) {
			// No PV has this label, so that the PV controller gives the claim none but one that is reserved for it.
			spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"example.com/none": ""}}
		})
	case scenario.RestoreClaim:
		return s.recreateClaim(ctx, vol, func(spec *v1.PersistentVolumeClaimSpec) { spec.VolumeName = vol.Name })
	case scenario.BindAgain:
		return s.bindAgain(ctx, vol)
	case scenario.TakeBack:
		return s.patch(ctx, vol, types.MergePatchType, `{"spec":{"claimRef":{"uid":null,"resourceVersion":null}}}`)
	case scenario.StripFinalizer:
		return s.patch(ctx, vol, types.StrategicMergePatchType, fmt.Sprintf(`{"metadata":{"$deleteFromPrimitiveList/finalizers":[%q]}}`, volume.Finalizer))
	case scenario.Attach:
		_, err := s.client.StorageV1().VolumeAttachments().Create(ctx, &storagev1.VolumeAttachment{
			ObjectMeta: metav1.ObjectMeta{Name: vol.Name},
			Spec: storagev1.VolumeAttachmentSpec{
				Attacher: s.driver.Name(), NodeName: "a-node-of-another-cluster",
				Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &vol.Name},
			},
		}, metav1.CreateOptions{})
		return err
	case scenario.Detach:
		return s.client.StorageV1().VolumeAttachments().Delete(ctx, vol.Name, metav1.DeleteOptions{})
	default:
		return errors.New("no such step")
	}
}

func (s *stage) make(ctx context.Context, step scenario.Step) (err error) {
	vol := &storage.Volume{}
	if step.Kind == scenario.Provisioned {
		vol, err = s.makeClaim(ctx, step)
	} else {
		vol, err = s.makeVolume(ctx, step)
	}
	if err != nil {
		return err
	}
	s.vols[step.Volume] = vol
	s.order = append(s.order, step.Volume)
	s.mayLeak[vol.Name] = step.MayLeak
	return nil
}

func (s *stage) makeVolume(ctx context.Context, step scenario.Step) (*storage.Volume, error) {
	spec := storage.Spec{
		Name: s.name(step.Volume), Dynamic: step.Kind != scenario.Static, Unclaimed: step.Unclaimed, Policy: policyOf(step),
	}
	if step.Of != "" {
		spec.Handle = s.vols[step.Of].Handle
	}
	return s.maker.Make(ctx, spec)
}

func policyOf(step scenario.Step) v1.PersistentVolumeReclaimPolicy {
	return v1.PersistentVolumeReclaimPolicy(cmp.Or(step.Policy, string(v1.PersistentVolumeReclaimDelete)))
}

// makeClaim makes a claim of a class of its own, which the sidecar is to provision.
func (s *stage) makeClaim(ctx context.Context, step scenario.Step) (*storage.Volume, error) {
	s.policies[step.Volume] = policyOf(step)
	if err := s.makeClass(ctx, step.Volume); err != nil {
		return nil, err
	}
	claim, err := s.maker.MakeClaim(ctx, storage.ClaimSpec{Name: s.name(step.Volume), Class: s.name(step.Volume)})
	if err != nil {
		return nil, err
	}
	s.claims[step.Volume] = claim
	return claim.Volume(provisionedName + string(claim.UID)), nil
}

// provisionedName is what the names of PVs and volumes that are provisioned begin with.
const provisionedName = "pvc-"

func (s *stage) makeClass(ctx context.Context, volume string) error {
	_, err := s.maker.MakeClass(ctx, storage.Class{Name: s.name(volume), Policy: s.policies[volume]})
	return err
}

func (s *stage) deleteClass(ctx context.Context, volume string) error {
	return s.client.StorageV1().StorageClasses().Delete(ctx, s.name(volume), metav1.DeleteOptions{})
}

func (s *stage) patchClaim(ctx context.Context, volume, patch string) error {
	_, err := s.client.CoreV1().PersistentVolumeClaims(s.token).Patch(ctx, s.name(volume), types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	return err
}

func (s *stage) recreateClaim(ctx context.Context, vol *storage.Volume, change func(*v1.PersistentVolumeClaimSpec)) error {
	noClass := ""
	claim := &v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: vol.ClaimName},
		Spec: v1.PersistentVolumeClaimSpec{
			StorageClassName: &noClass, AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
			Resources: v1.VolumeResourceRequirements{Requests: v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Mi")}},
		},
	}
	change(&claim.Spec)
	_, err := s.client.CoreV1().PersistentVolumeClaims(s.token).Create(ctx, claim, metav1.CreateOptions{})
	return err
}

func (s *stage) bindAgain(ctx context.Context, vol *storage.Volume) error {
	claim, err := s.client.CoreV1().PersistentVolumeClaims(s.token).Get(ctx, vol.ClaimName, metav1.GetOptions{})
	if err != nil {
		return err
	}
	return s.patch(ctx, vol, types.StrategicMergePatchType, fmt.Sprintf(`{"spec":{"claimRef":{"uid":%q,"resourceVersion":null}}}`, claim.UID))
}

func (s *stage) patch(ctx context.Context, vol *storage.Volume, kind types.PatchType, patch string) error {
	_, err := s.client.CoreV1().PersistentVolumes().Patch(ctx, vol.Name, kind, []byte(patch), metav1.PatchOptions{})
	return err
}

// playProgram does what happens to the sidecar and the driver.
func (s *stage) playProgram(ctx context.Context, step scenario.Step) error {
	switch step.Do {
	case scenario.Kill:
		s.keeper.kill(false)
	case scenario.Start:
		s.keeper.want()
		return s.keeper.waitReady(ctx)
	case scenario.StayDown:
		s.keeper.stayDown()
	case scenario.Pause:
		s.lags()
		return s.keeper.car.Pause()
	case scenario.Resume:
		return s.keeper.car.Resume()
	case scenario.KillDriver:
		s.driver.kill()
	case scenario.StartDriver:
		s.driver.start()
	case scenario.CrashAtCall:
		return s.crashAtCall(ctx, cmp.Or(step.Method, scenario.DeleteVolume), max(step.Nth, 1), step.At)
	default:
		return errors.New("no such step")
	}
	return nil
}

// slow is how long the driver takes for a call at which the sidecar is to be killed: longer than it takes to notice.
const slow = 300 * time.Millisecond

// crashAtCall has the sidecar killed at its nth call of a method from now on.
func (s *stage) crashAtCall(ctx context.Context, method string, nth int, at string) error {
	delay := faults.Rule{Method: method, VolumeName: onlyTheSidecars(method), Nth: nth, Action: faults.Delay, Delay: faults.Duration(callTimeout), AfterWork: at == scenario.AtDone}
	if at == scenario.AtAnswered {
		delay.Delay = faults.Duration(slow)
	}
	before, err := s.calls(method)
	if err != nil {
		return err
	}
	if err := s.driver.plan(ctx, faults.Plan{Rules: []faults.Rule{delay}}); err != nil {
		return err
	}
	nth += len(before)
	happened := func(ctx context.Context, is func(ledger.Call) bool) error {
		_, err := s.driver.WaitCalls(ctx, func(calls []ledger.Call) bool {
			calls = bySidecar(calls)
			return len(calls) >= nth && is(calls[nth-1])
		}, method)
		return err
	}
	s.background.Go(func() { //nolint:contextcheck // it goes on after the step, to the end of the story
		var err error
		var last func()
		switch at {
		case scenario.AtReceived:
			err = happened(s.story, func(ledger.Call) bool { return true })
		case scenario.AtDone:
			err = happened(s.story, func(c ledger.Call) bool { return !c.Done.IsZero() || c.Lost })
		case scenario.AtAnswered:
			err = happened(s.story, func(ledger.Call) bool { return true })
			last = func() {
				// The driver may have other faults, and never answer; nothing passes the line meanwhile.
				ctx, cancel := context.WithTimeout(s.story, callTimeout)
				defer cancel()
				if err := happened(ctx, func(c ledger.Call) bool { return !c.Answered.IsZero() || c.Lost }); err != nil {
					s.note("the call is not answered: %v", err)
				}
			}
		}
		if err != nil {
			s.note("no crash at a call: %v", err)
			return
		}
		s.line.Crash(last)
	})
	return nil
}

// onlyTheSidecars is the pattern for the names of volumes that keeps a rule from the CreateVolume calls of whoever makes volumes
// by hand.
func onlyTheSidecars(method string) string {
	if method == scenario.CreateVolume {
		return provisionedName + "*"
	}
	return ""
}

// calls returns the calls that the driver received from the sidecar, of the given methods.
func (s *stage) calls(methods ...string) ([]ledger.Call, error) {
	calls, err := s.driver.Calls(methods...)
	return bySidecar(calls), err
}

// bySidecar returns the calls without those that make volumes by hand.
func bySidecar(calls []ledger.Call) []ledger.Call {
	return slices.DeleteFunc(slices.Clone(calls), func(c ledger.Call) bool {
		return c.Method == scenario.CreateVolume && !strings.HasPrefix(c.Name, provisionedName)
	})
}

// playLine does what happens to the line and to the driver's behaviour.
func (s *stage) playLine(ctx context.Context, step scenario.Step) (err error) {
	switch step.Do {
	case scenario.API:
		return s.setRules(step.Rules)
	case scenario.Driver:
		plan := faults.Plan{Rules: slices.Clone(step.Calls)}
		for i := range plan.Rules {
			switch r := &plan.Rules[i]; {
			case r.VolumeName == "":
				r.VolumeName = onlyTheSidecars(r.Method)
			case s.vols[r.VolumeName] != nil:
				r.VolumeName = s.vols[r.VolumeName].Name
			default:
				r.VolumeName = s.name(r.VolumeName)
			}
		}
		return s.driver.plan(ctx, plan)
	case scenario.Hold:
		s.lags()
		s.line.Hold(step.Resource)
	case scenario.LetGo:
		s.line.LetGo(step.Resource)
	case scenario.Cut:
		s.lags()
		if s.line.Cut(step.Resource) == 0 {
			s.note("there was no watch of %s to cut", step.Resource)
		}
	case scenario.Freeze:
		s.lags()
		s.line.Freeze()
	case scenario.Partition:
		s.lags()
		s.line.Partition()
	case scenario.Heal:
		s.heal()
	case scenario.Mark:
		s.mark, err = s.version(ctx)
	default:
		err = errors.New("no such step")
	}
	return err
}

func (s *stage) setRules(rules []proxy.Rule) error {
	s.applied += s.line.Applied()
	rules = slices.Clone(rules)
	for i := range rules {
		r := &rules[i]
		if r.Object != "" {
			r.Object = s.name(r.Object)
		}
		if r.Version == scenario.MarkVersion {
			r.Version = s.mark
		}
		if r.Verb == "" || r.Verb == "watch" || r.Verb == "list" || r.Verb == "read" {
			s.lags()
		}
	}
	return s.line.SetRules(rules...)
}

// heal makes the line a good one.
func (s *stage) heal() {
	s.applied += s.line.Applied()
	s.line.Heal()
}

// lags notes that from now on a watch of the sidecar may be held up.
func (s *stage) lags() {
	if s.lagging.IsZero() {
		s.lagging = time.Now()
	}
}

// version returns the resourceVersion of the PVs.
func (s *stage) version(ctx context.Context) (string, error) {
	list, err := s.client.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return "", err
	}
	return list.ResourceVersion, nil
}
