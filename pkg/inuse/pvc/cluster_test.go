package pvc

import (
	"errors"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// A claim is released because of a pod that the list does not show.
func TestListPodsIsCompleteAndLive(t *testing.T) {
	var asked []metav1.ListOptions
	var fail error
	client := fake.NewClientset()
	client.PrependReactor("list", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		list, ok := action.(clienttesting.ListActionImpl)
		if !ok || list.GetNamespace() != "ns" {
			t.Errorf("asked for %+v", action)
		}
		asked = append(asked, list.GetListOptions())
		page := &v1.PodList{Items: []v1.Pod{{ObjectMeta: metav1.ObjectMeta{Name: "first"}}}}
		page.Continue = "more"
		if list.GetListOptions().Continue != "" {
			return true, &v1.PodList{Items: []v1.Pod{{ObjectMeta: metav1.ObjectMeta{Name: "second"}}}}, fail
		}
		return true, page, nil
	})
	server := apiServer{client.CoreV1()}
	pods, err := server.listPods(t.Context(), "ns")
	var names []string
	for _, p := range pods {
		names = append(names, p.Name)
	}
	if err != nil || !slices.Equal(names, []string{"first", "second"}) {
		t.Errorf("listed %q, %v", names, err)
	}
	for i, o := range asked {
		if o.ResourceVersion != "" || o.FieldSelector != "spec.nodeName!=" || o.Limit == 0 ||
			(o.Continue == "more") != (i == 1) {
			t.Errorf("page %d: asked with %+v", i, o)
		}
	}
	fail = errors.New("expired")
	if pods, err = server.listPods(t.Context(), "ns"); err == nil || pods != nil {
		t.Errorf("without its second page the list is %v, %v", pods, err)
	}
}
