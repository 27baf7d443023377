package admission

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
)

// Protected returns the drivers whose PVs are protected, at the moment it is called. It does not block, and the
// caller does not change what it returns.
type Protected func() Drivers

// Reader reads objects from the API server, as they are now. found is false where there is none.
type Reader interface {
	Pod(ctx context.Context, namespace, name string) (pod *v1.Pod, found bool, err error)
	Claim(ctx context.Context, namespace, name string) (claim *v1.PersistentVolumeClaim, found bool, err error)
}

// readFor bounds all reads for one answer, so that it comes before the API server stops waiting.
const readFor = (timeoutSeconds - 1) * time.Second

// Handler returns the webhooks, at PathPVs and PathPods. It keeps no state and is safe for concurrent
// use.
func Handler(drivers Protected, reader Reader) http.Handler {
	mux := http.NewServeMux()
	mux.Handle(PathPVs, review(protectPVs(drivers)))
	mux.Handle(PathPods, review(guardPods(reader)))
	return mux
}

func allowed() *admissionv1.AdmissionResponse { return &admissionv1.AdmissionResponse{Allowed: true} }

// protectPVs adds the finalizers that PVs are missing.
func protectPVs(drivers Protected) judge {
	return func(_ context.Context, request *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
		if request.Resource != (metav1.GroupVersionResource{Version: "v1", Resource: "persistentvolumes"}) || request.SubResource != "" {
			return allowed(), nil
		}
		var pv v1.PersistentVolume
		if err := decode(request.Object.Raw, &pv); err != nil {
			return nil, err
		}
		response := allowed()
		if missing := Missing(&pv, drivers()); len(missing) > 0 {
			patch, err := addition(pv.Finalizers, missing)
			if err != nil {
				return nil, err
			}
			kind := admissionv1.PatchTypeJSONPatch
			response.Patch, response.PatchType = patch, &kind
		}
		return response, nil
	}
}

// addition returns the JSON patch that adds finalizers behind those that are there.
func addition(there, missing []string) ([]byte, error) {
	type operation struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value any    `json:"value"`
	}
	var all []operation
	if len(there) == 0 {
		all = append(all, operation{"add", "/metadata/finalizers", missing})
		missing = nil
	}
	for _, finalizer := range missing {
		all = append(all, operation{"add", "/metadata/finalizers/-", finalizer})
	}
	patch, err := json.Marshal(all)
	if err != nil {
		return nil, fmt.Errorf("write the patch of a PV: %w", err)
	}
	return patch, nil
}

// guardPods keeps pods off nodes while one of their claims is being deleted. What cannot be read
// refuses nothing, although nobody makes up for it: see DESIGN.md.
func guardPods(reader Reader) judge {
	return func(ctx context.Context, request *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
		ctx, cancel := context.WithTimeout(ctx, readFor)
		defer cancel()
		pod, err := podOf(ctx, reader, request)
		if err != nil && errors.Is(err, errMalformed) {
			return nil, err
		}
		var why string
		if err == nil && pod != nil {
			why, err = refusal(ctx, reader, pod)
		}
		response := allowed()
		switch {
		case why != "":
			response.Allowed = false
			response.Result = &metav1.Status{Status: metav1.StatusFailure, Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden, Message: why}
		case err != nil:
			klog.FromContext(ctx).Error(err, "Whether a pod's claims are being deleted could not be read, so it goes on", "namespace", request.Namespace, "name", request.Name)
			response.Warnings = []string{"csi-reclaimer could not read whether the pod's claims are being deleted"}
		}
		return response, nil
	}
}

// podOf returns the pod that is to be put on a node, nil if the request is about none. A Binding names its pod by
// its own name: those of the subresource pods/binding, and those of the legacy resource bindings.
func podOf(ctx context.Context, reader Reader, request *admissionv1.AdmissionRequest) (*v1.Pod, error) {
	if request.Resource.Group != "" || request.Resource.Version != "v1" {
		return nil, nil //nolint:nilnil // no pod is an answer of its own here
	}
	switch path.Join(request.Resource.Resource, request.SubResource) {
	case "pods":
		var pod v1.Pod
		if err := decode(request.Object.Raw, &pod); err != nil {
			return nil, err
		}
		if pod.Spec.NodeName == "" {
			return nil, nil //nolint:nilnil // the scheduler comes later
		}
		pod.Namespace = request.Namespace
		return &pod, nil
	case "pods/binding", "bindings":
		var binding v1.Binding
		if err := decode(request.Object.Raw, &binding); err != nil {
			return nil, err
		}
		pod, found, err := reader.Pod(ctx, request.Namespace, binding.Name)
		if err != nil || !found {
			return nil, err
		}
		return pod, nil
	}
	return nil, nil //nolint:nilnil // it puts no pod on a node
}

// refusal reads the pod's claims until one refuses it. That one cannot be read does not save a pod whose
// other claim is being deleted.
func refusal(ctx context.Context, reader Reader, pod *v1.Pod) (why string, _ error) {
	var failed error
	for name := range ClaimsOf(pod) {
		claim, found, err := reader.Claim(ctx, pod.Namespace, name)
		switch {
		case err != nil:
			failed = err
		case found:
			if why := Refusal(pod, claim); why != "" {
				return why, nil
			}
		}
	}
	return "", failed
}
