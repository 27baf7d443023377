package scenario

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/faults"
	"github.com/csi-reclaimer/csi-reclaimer/test/faults/proxy"
)

// Scenario is a sequence of actions of users, programs and faults.
type Scenario struct {
	// Name is short, without spaces. Story says what it plays, and the reason for its end.
	Name        string `json:"name"`
	Description string `json:"description,omitempty"`
	// Args are further flags of the sidecar.
	Args []string `json:"args,omitempty"`
	// Want is how volumes must end.
	Want  map[string]End `json:"want,omitempty"`
	Steps []Step         `json:"steps"`
}

// End is how a volume must end.
type End string

const (
	// Deleted means that the PV and the volume are gone, and the claim, too, if they were provisioned.
	Deleted End = "deleted"
	// Kept means that the volume exists, and DeleteVolume was never called.
	Kept End = "kept"
	// Bound means that the claim has its PV, and the volume exists.
	Bound End = "bound"
)

// Step is one step of a scenario. The package's comment lists the fields of each action.
type Step struct {
	Do     Action `json:"do"`
	Volume string `json:"volume,omitempty"`

	Kind      string `json:"kind,omitempty"`
	Policy    string `json:"policy,omitempty"`
	Of        string `json:"of,omitempty"`
	Unclaimed bool   `json:"unclaimed,omitempty"`
	MayLeak   bool   `json:"mayLeak,omitempty"`

	Method   string         `json:"method,omitempty"`
	Resource string         `json:"resource,omitempty"`
	Rules    []proxy.Rule   `json:"rules,omitempty"`
	Calls    []faults.Rule  `json:"calls,omitempty"`
	Nth      int            `json:"nth,omitempty"`
	At       string         `json:"at,omitempty"`
	For      string         `json:"for,omitempty"`
	Time     proxy.Duration `json:"time,omitempty"`
}

// Action is the action of a step.
type Action string

// The actions, see the package's comment.
const (
	Make           Action = "make"
	DeleteClaim    Action = "delete-claim"
	DeletePV       Action = "delete-pv"
	SetPolicy      Action = "set-policy"
	RecreateClaim  Action = "recreate-claim"
	RestoreClaim   Action = "restore-claim"
	BindAgain      Action = "bind-again"
	TakeBack       Action = "take-back"
	StripFinalizer Action = "strip-finalizer"
	Attach         Action = "attach"
	Detach         Action = "detach"
	MakeClass      Action = "make-class"
	DeleteClass    Action = "delete-class"

	Kill        Action = "kill"
	Start       Action = "start"
	StayDown    Action = "stay-down"
	Pause       Action = "pause"
	Resume      Action = "resume"
	KillDriver  Action = "kill-driver"
	StartDriver Action = "start-driver"
	CrashAtCall Action = "crash-at-call"

	API       Action = "api"
	Driver    Action = "driver"
	Hold      Action = "hold"
	Release   Action = "release"
	Cut       Action = "cut"
	Freeze    Action = "freeze"
	Partition Action = "partition"
	Heal      Action = "heal"
	Mark      Action = "mark"

	Wait Action = "wait"
	Pass Action = "pass"
	Rest Action = "rest"
)

// MarkVersion in a rule stands for the resourceVersion of the last mark.
const MarkVersion = "mark"

// The kinds of volumes.
const (
	Dynamic     = "dynamic"
	Static      = "static"
	Provisioned = "provisioned"
)

// The methods of crash-at-call.
const (
	CreateVolume = "CreateVolume"
	DeleteVolume = "DeleteVolume"
)

// The moments of crash-at-call.
const (
	AtReceived = "received"
	AtDone     = "done"
	AtAnswered = "answered"
)

// needs are the fields that a step must have.
type needs struct {
	volume, provisioned, policy, resource, at, time bool
	conditions                                      []string
}

func needsOf(a Action) (needs, bool) {
	switch a {
	case Make, DeleteClaim, DeletePV, RecreateClaim, RestoreClaim, BindAgain, TakeBack, StripFinalizer, Attach, Detach:
		return needs{volume: true}, true
	case MakeClass, DeleteClass:
		return needs{volume: true, provisioned: true}, true
	case SetPolicy:
		return needs{volume: true, policy: true}, true
	case Kill, Start, StayDown, Pause, Resume, KillDriver, StartDriver, API, Driver, Freeze, Partition, Heal, Mark, Rest:
		return needs{}, true
	case CrashAtCall:
		return needs{at: true}, true
	case Hold, Release, Cut:
		return needs{resource: true}, true
	case Wait:
		return needs{conditions: slices.Concat(volumeConditions(), claimConditions(),
			[]string{"applied", "crashed", "down", "ready"})}, true
	case Pass:
		return needs{time: true}, true
	}
	return needs{}, false
}

func volumeConditions() []string {
	return []string{"protected", "unprotected", "bound", "released", "terminating", "gone", "claim-gone", "off-disk",
		"called"}
}

// claimConditions are the conditions of provisioned volumes.
func claimConditions() []string {
	return []string{"in-flight", "settled", "asked", "on-disk"}
}

// Parse reads a scenario and validates it. Unknown fields are errors.
func Parse(data []byte) (Scenario, error) {
	var tree any
	if err := yaml.Unmarshal(data, &tree); err != nil {
		return Scenario{}, fmt.Errorf("parse scenario: %w", err)
	}
	plain, err := json.Marshal(tree)
	if err != nil {
		return Scenario{}, fmt.Errorf("parse scenario: %w", err)
	}
	var s Scenario
	d := json.NewDecoder(bytes.NewReader(plain))
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil {
		return Scenario{}, fmt.Errorf("parse scenario: %w", err)
	}
	return s, s.Validate()
}

// Read reads the scenario of a file.
func Read(path string) (Scenario, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return Scenario{}, fmt.Errorf("read scenario: %w", err)
	}
	s, err := Parse(data)
	if err != nil {
		return Scenario{}, fmt.Errorf("read %s: %w", path, err)
	}
	return s, nil
}

// Validate names the first step that is wrong.
func (s Scenario) Validate() error {
	if s.Name == "" || strings.ContainsAny(s.Name, " /") {
		return fmt.Errorf("scenario %q: the name must not be empty, nor have spaces or slashes", s.Name)
	}
	made := map[string]string{} // kinds of volumes
	for i, step := range s.Steps {
		if step.Do == Make {
			if made[step.Volume] != "" {
				return fmt.Errorf("scenario %q: step %d (%s): volume %q is there", s.Name, i+1, step.Do, step.Volume)
			}
			made[step.Volume] = cmp.Or(step.Kind, Dynamic)
		}
		if err := step.validate(made); err != nil {
			return fmt.Errorf("scenario %q: step %d (%s): %w", s.Name, i+1, step.Do, err)
		}
	}
	for volume, end := range s.Want {
		if kind := made[volume]; kind == "" || end != Deleted && end != Kept && (end != Bound || kind != Provisioned) {
			return fmt.Errorf("scenario %q: want %s: %s: no such volume or end", s.Name, volume, end)
		}
	}
	return nil
}

func (s Step) validate(made map[string]string) error {
	needs, known := needsOf(s.Do)
	if !known {
		return fmt.Errorf("no such step")
	}
	if needs.conditions != nil && !slices.Contains(needs.conditions, s.For) {
		return fmt.Errorf("for %q: must be one of %v", s.For, needs.conditions)
	}
	needs.provisioned = needs.provisioned || s.Do == Wait && slices.Contains(claimConditions(), s.For)
	needs.volume = needs.volume || needs.provisioned || s.Do == Wait && slices.Contains(volumeConditions(), s.For)
	if err := s.checkVolume(needs, made); err != nil {
		return err
	}
	if err := s.checkFields(needs); err != nil {
		return err
	}
	return s.checkRules()
}

// checkVolume is an error if the step does not go with the volumes made before it; made has their kinds.
func (s Step) checkVolume(needs needs, made map[string]string) error {
	switch {
	case needs.volume && made[s.Volume] == "":
		return fmt.Errorf("volume %q was not made", s.Volume)
	case needs.provisioned && made[s.Volume] != Provisioned:
		return fmt.Errorf("volume %q is not provisioned", s.Volume)
	case s.Of != "" && (made[s.Of] == "" || made[s.Of] == Provisioned || s.Kind == Provisioned):
		return fmt.Errorf("of %q: was not made, or one of the two is provisioned", s.Of)
	case s.Unclaimed && s.Kind == Provisioned:
		return fmt.Errorf("a volume is provisioned for a claim")
	}
	return nil
}

// checkFields is an error if a field that the step needs is missing, or one is not one of its values.
func (s Step) checkFields(needs needs) error {
	switch {
	case (needs.policy || s.Policy != "") && s.Policy != "Delete" && s.Policy != "Retain":
		return fmt.Errorf("policy %q: must be Delete or Retain", s.Policy)
	case !slices.Contains([]string{"", Dynamic, Static, Provisioned}, s.Kind):
		return fmt.Errorf("kind %q: must be dynamic, static or provisioned", s.Kind)
	case !slices.Contains([]string{"", CreateVolume, DeleteVolume}, s.Method):
		return fmt.Errorf("method %q: must be CreateVolume or DeleteVolume", s.Method)
	case needs.resource && s.Resource == "":
		return fmt.Errorf("resource is missing")
	case needs.at && !slices.Contains([]string{AtReceived, AtDone, AtAnswered}, s.At):
		return fmt.Errorf("at %q: must be %s, %s or %s", s.At, AtReceived, AtDone, AtAnswered)
	case needs.time && s.Time <= 0:
		return fmt.Errorf("time must be positive")
	case s.Nth < 0:
		return fmt.Errorf("nth is negative")
	}
	return nil
}

// checkRules is an error if a rule of the step is not valid.
func (s Step) checkRules() error {
	for _, r := range s.Rules {
		if err := r.Validate(); err != nil {
			return err
		}
	}
	for _, r := range s.Calls {
		if r.Method == CreateVolume && r.VolumeName != "" {
			return fmt.Errorf("a rule for %s is about all volumes that are provisioned, and names none", CreateVolume)
		}
	}
	return faults.Plan{Rules: s.Calls}.Validate()
}

// String is the step in a line of a history.
func (s Step) String() string {
	data, err := json.Marshal(s)
	if err != nil {
		return string(s.Do)
	}
	return string(data)
}

// Marshal writes the scenario as Parse reads it: JSON with a line for each step.
func (s Scenario) Marshal() ([]byte, error) {
	head := s
	head.Steps = nil
	data, err := json.Marshal(head)
	if err != nil {
		return nil, fmt.Errorf("write scenario %q: %w", s.Name, err)
	}
	text := strings.TrimSuffix(string(data), "null}") + "[\n"
	for i, step := range s.Steps {
		text += "  " + step.String()
		if i+1 < len(s.Steps) {
			text += ","
		}
		text += "\n"
	}
	return []byte(text + "]}\n"), nil
}
