package admission

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"path"
	"slices"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/admission/podsafety"
)

// DriversFunc returns the drivers whose PVs are protected at the moment of the call. It does not block, and the caller
// must not modify the result.
type DriversFunc func() Drivers

// Reader reads objects live from the API server, with found false for a missing object.
type Reader interface {
	Pod(ctx context.Context, namespace, name string) (pod *v1.Pod, found bool, err error)
	Claim(ctx context.Context, namespace, name string) (claim *v1.PersistentVolumeClaim, found bool, err error)
}

// readTimeout bounds all reads for one answer, so that the answer arrives before the API server stops waiting.
const readTimeout = (timeoutSeconds - 1) * time.Second

// Handler returns the webhooks, at pathPVs, pathPods, pathPodHold and pathPodGate. It keeps no state but the number of
// reviews in progress, and is safe for concurrent use.
func Handler(drivers DriversFunc, reader Reader) http.Handler {
	mux, large := http.NewServeMux(), make(turns, largeReviews)
	mux.Handle(pathPVs, review(mutatePVs(drivers), large))
	mux.Handle(pathPods, review(validatePods(reader), large))
	mux.Handle(pathPodHold, review(changePod(podsafety.HoldOf), large))
	mux.Handle(pathPodGate, review(changePod(podsafety.GateOf), large))
	return mux
}

func allowed() *admissionv1.AdmissionResponse { return &admissionv1.AdmissionResponse{Allowed: true} }

// mutatePVs adds the finalizers that PVs are missing.
func mutatePVs(drivers DriversFunc) reviewFunc {
	return atOnce(func(request *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
		if request.Resource != (metav1.GroupVersionResource{Version: "v1", Resource: "persistentvolumes"}) ||
			request.SubResource != "" {
			return allowed(), nil
		}
		var pv v1.PersistentVolume
		if err := decode(request.Object.Raw, &pv); err != nil {
			return nil, err
		}
		return patched(addFinalizers(pv.Finalizers, missingFinalizers(&pv, drivers())))
	})
}

// operation is one operation of a JSON patch (RFC 6902).
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// addFinalizers returns the operations that append finalizers to the existing ones.
func addFinalizers(there, missing []string) []operation {
	return appends("/metadata/finalizers", len(there) > 0, missing)
}

// appends returns the operations that append to the list at a path, which may not exist yet.
func appends[E any](path string, exists bool, missing []E) (all []operation) {
	if !exists && len(missing) > 0 {
		return []operation{{"add", path, missing}}
	}
	for _, one := range missing {
		all = append(all, operation{"add", path + "/-", one})
	}
	return all
}

// patched returns the response that admits an object with these changes, or unchanged without operations.
func patched(operations []operation) (*admissionv1.AdmissionResponse, error) {
	response := allowed()
	if len(operations) == 0 {
		return response, nil
	}
	patch, err := json.Marshal(operations)
	if err != nil {
		return nil, fmt.Errorf("write the patch of an object: %w", err)
	}
	kind := admissionv1.PatchTypeJSONPatch
	response.Patch, response.PatchType = patch, &kind
	return response, nil
}

// changePod applies the changes of a function to a pod that is being created, in namespaces that the API server
// selects.
func changePod(changesOf func(*v1.Pod) podsafety.Changes) reviewFunc {
	return atOnce(func(request *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
		if request.Resource != (metav1.GroupVersionResource{Version: "v1", Resource: "pods"}) ||
			request.SubResource != "" || request.Operation != admissionv1.Create {
			return allowed(), nil
		}
		pod, err := decodePod(request.Object.Raw)
		if err != nil {
			return nil, err
		}
		return patched(operationsOf(pod, changesOf(pod)))
	})
}

// operationsOf returns the operations that make the changes of a pod.
func operationsOf(pod *v1.Pod, changes podsafety.Changes) (all []operation) {
	if changes.Hold {
		all = addFinalizers(pod.Finalizers, []string{objects.RunningFinalizer})
	}
	if changes.Grace {
		all = append(all, operation{"replace", "/spec/terminationGracePeriodSeconds", podsafety.MinGracePeriodSeconds})
	}
	if changes.Gate {
		all = append(all, appends("/spec/schedulingGates", len(pod.Spec.SchedulingGates) > 0,
			[]v1.PodSchedulingGate{{Name: podsafety.Gate}})...)
	}
	return all
}

// validatePods denies pods a node while one of their claims is terminating. A pod whose claims cannot be read is
// admitted, although no other component checks it later: see DESIGN.md.
func validatePods(reader Reader) reviewFunc {
	reading := make(turns, readingReviews)
	return func(request *admissionv1.AdmissionRequest) (answerFunc, error) {
		podOf, err := podOf(reader, request)
		if err != nil || podOf == nil {
			return func(context.Context) (*admissionv1.AdmissionResponse, error) { return allowed(), nil }, err
		}
		namespace, name := request.Namespace, request.Name
		return func(ctx context.Context) (*admissionv1.AdmissionResponse, error) {
			ctx, cancel := context.WithTimeout(ctx, readTimeout)
			defer cancel()
			if !reading.begin(ctx) {
				return nil, errBusy
			}
			defer reading.end()
			var why string
			pod, err := podOf(ctx)
			if pod != nil {
				why, err = denialReason(ctx, reader, pod)
			}
			response := allowed()
			switch {
			case why != "":
				response.Allowed = false
				response.Result = &metav1.Status{Status: metav1.StatusFailure, Code: http.StatusForbidden,
					Reason: metav1.StatusReasonForbidden, Message: why}
			case err != nil:
				klog.FromContext(ctx).Error(err, "Admitting a pod: whether its claims are terminating could not be read",
					"namespace", namespace, "name", name)
				response.Warnings = []string{"csi-reclaimer could not read whether the pod's claims are terminating"}
			}
			return response, nil
		}, nil
	}
}

// candidate is a pod that is to be bound to a node, with as much of it as the rule needs.
type candidate struct {
	metav1.ObjectMeta
	// claims has at most one more than maxClaims of the names of claimsOf.
	claims map[string]bool
}

func candidateOf(pod *v1.Pod) *candidate {
	claims := claimsOf(pod)
	maps.DeleteFunc(claims, func(name string, _ bool) bool { return len(name) > maxName }) // no claim has such a name
	for _, name := range slices.Sorted(maps.Keys(claims))[min(len(claims), maxClaims+1):] {
		delete(claims, name)
	}
	about := metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}
	if len(about.Name) > maxName || len(about.UID) > maxUID {
		about = metav1.ObjectMeta{Namespace: pod.Namespace} // no claim has such an owner
	}
	return &candidate{about, claims}
}

// candidateFunc returns a candidate, nil if it is gone.
type candidateFunc func(context.Context) (*candidate, error)

// podOf returns a function that returns the pod that is to be bound to a node, or nil if the request concerns none. A
// Binding has the name of its pod, both in the subresource pods/binding and in the legacy resource bindings.
func podOf(reader Reader, request *admissionv1.AdmissionRequest) (candidateFunc, error) {
	if request.Resource.Group != "" || request.Resource.Version != "v1" {
		return nil, nil
	}
	switch path.Join(request.Resource.Resource, request.SubResource) {
	case "pods":
		pod, err := decodePod(request.Object.Raw)
		if err != nil {
			return nil, err
		}
		if pod.Spec.NodeName == "" { // the scheduler binds it later, by a Binding
			return nil, nil
		}
		pod.Namespace = request.Namespace
		found := candidateOf(pod)
		return func(context.Context) (*candidate, error) { return found, nil }, nil
	case "pods/binding", "bindings":
		var binding v1.Binding
		if err := decode(request.Object.Raw, &binding); err != nil {
			return nil, err
		}
		if len(binding.Name) > maxName {
			return nil, fmt.Errorf("%w: the name of its pod is too long", errMalformed)
		}
		namespace, name := request.Namespace, binding.Name
		return func(ctx context.Context) (*candidate, error) {
			pod, found, err := reader.Pod(ctx, namespace, name)
			if !found {
				return nil, err
			}
			return candidateOf(pod), nil
		}, nil
	}
	return nil, nil
}

// errManyClaims means that a pod has more claims than maxClaims, and that the others were not read.
var errManyClaims = fmt.Errorf("only %d claims of a pod are read", maxClaims)

// denialReason reads the pod's claims until one denies the pod. A claim that cannot be read does not save a pod whose
// other claim is being deleted.
func denialReason(ctx context.Context, reader Reader, pod *candidate) (why string, failed error) {
	for i, name := range slices.Sorted(maps.Keys(pod.claims)) {
		if i == maxClaims {
			return "", errManyClaims
		}
		claim, found, err := reader.Claim(ctx, pod.Namespace, name)
		switch {
		case err != nil:
			failed = err
		case found:
			if why := pod.denial(claim); why != "" {
				return why, nil
			}
		}
	}
	return "", failed
}
