package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the API group and version of the kinds.
var GroupVersion = schema.GroupVersion{Group: "csi-reclaimer.io", Version: "v1alpha1"}

// AddToScheme adds the kinds to a scheme.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &NodeFence{}, &NodeFenceList{}, &NodeFenceTemplate{}, &NodeFenceTemplateList{},
		&FencePolicy{}, &FencePolicyList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
