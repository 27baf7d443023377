package main

// admitting are the guards under which a write is changed or refused on its way, or has no effect; and under
// which a webhook is believed.
func admitting() []mutant {
	const (
		in, certs = "pkg/admission", "pkg/admission/certs"
		admission = "the model has no admission"
	)
	all := []mutant{
		{
			name: "admit: a PV without claim is protected", in: in, file: "rule.go",
			before: "case pv.Spec.ClaimRef == nil || pv.Spec.ClaimRef.UID == \"\",", after: "case pv.Spec.ClaimRef == nil,",
		},
		{
			name: "admit: the policy is not looked at", in: in, file: "rule.go",
			before: "pv.Spec.PersistentVolumeReclaimPolicy != v1.PersistentVolumeReclaimDelete,", after: "false,",
		},
		{
			name: "admit: a PV that is being deleted gets a finalizer", in: in, file: "rule.go",
			before: "pv.DeletionTimestamp != nil, twin:", after: "twin:",
		},
		{
			name: "admit: a twin is protected", in: in, file: "rule.go",
			before: "pv.DeletionTimestamp != nil, twin:", after: "pv.DeletionTimestamp != nil, twin && false:",
		},
		{
			name: "admit: a driver that is not listed is protected", in: in, file: "rule.go",
			before: "if listed && !slices.Contains(pv.Finalizers, finalizer) {", after: "if (listed || true) && !slices.Contains(pv.Finalizers, finalizer) {",
		},
		{
			name: "admit: a finalizer that is there is put on again", in: in, file: "rule.go",
			before: "if listed && !slices.Contains(pv.Finalizers, finalizer) {", after: "if listed {",
		},
		{
			name: "admit: whom a PV is migrated to is not looked at", in: in, file: "rule.go",
			before: "if migrated, is := pv.Annotations[annMigratedTo]; is {", after: "if migrated, is := pv.Annotations[annMigratedTo]; is && false {",
		},
		{
			name: "admit: the driver of the volume answers for another provisioner's", in: in, file: "rule.go",
			before: "return append(drivers, provisioner)", after: "drivers = append(drivers, provisioner)",
		},
		{
			name: "admit: a pod is refused for another's claim", in: in, file: "rule.go",
			before: "case !used || claim.Namespace != pod.Namespace ||", after: "case used && !used || claim.Namespace != pod.Namespace ||",
		},
		{
			name: "admit: a pod is refused for a claim of another namespace", in: in, file: "rule.go",
			before: "claim.Namespace != pod.Namespace || ", after: "",
		},
		{
			name: "admit: a pod is refused for a claim that stays", in: in, file: "rule.go",
			before: " || claim.DeletionTimestamp == nil:", after: ":",
		},
		{
			name: "admit: a pod is refused for an earlier pod's volume", in: in, file: "rule.go",
			before: "case own && !metav1.IsControlledBy(claim, pod):", after: "case own && !own && !metav1.IsControlledBy(claim, pod):",
		},
		{
			name: "admit: a claim that is named besides counts as the pod's own", in: in, file: "rule.go",
			before: "names[v.PersistentVolumeClaim.ClaimName] = false", after: "names[v.PersistentVolumeClaim.ClaimName] = names[v.PersistentVolumeClaim.ClaimName]",
		},
		{
			name: "admit: other resources are taken for PVs", in: in, file: "handler.go",
			before: "Resource: \"persistentvolumes\"}) || request.SubResource != \"\" {", after: "Resource: request.Resource.Resource}) {",
		},
		{
			name: "admit: other resources are taken for pods", in: in, file: "handler.go",
			before: "if request.Resource.Group != \"\" || request.Resource.Version != \"v1\" {", after: "if false {",
		},
		{
			name: "admit: a legacy binding is not judged", in: in, file: "handler.go",
			before: "case \"pods/binding\", \"bindings\":", after: "case \"pods/binding\":",
		},
		{
			name: "admit: nobody asks about legacy bindings", in: in, file: "webhooks.go", live: "TestTheWebhooks",
			before: "[]string{\"pods/binding\", \"bindings\"}", after: "[]string{\"pods/binding\"}",
		},
		{
			name: "admit: a pod without a node is refused", in: in, file: "handler.go",
			before: "if pod.Spec.NodeName == \"\" {", after: "if false {",
		},
		{
			name: "admit: a pod that is made has no namespace", in: in, file: "handler.go",
			before: "\t\tpod.Namespace = request.Namespace\n", after: "",
		},
		{
			name: "admit: what cannot be read refuses", in: in, file: "handler.go",
			before: "\t\tcase err != nil:\n\t\t\tklog", after: "\t\tcase err != nil:\n\t\t\tresponse.Allowed = false\n\t\t\tklog",
		},
		{
			name: "admit: a claim that cannot be read saves the pod", in: in, file: "handler.go",
			before: "\t\t\tfailed = err\n", after: "\t\t\treturn \"\", err\n",
		},
		{
			name: "admit: a read may take for ever", in: in, file: "handler.go",
			before: "ctx, cancel := context.WithTimeout(ctx, readFor)", after: "ctx, cancel := context.WithCancel(ctx)",
		},
		{
			name: "admit: the first finalizer replaces the list", in: in, file: "handler.go",
			before: "if len(there) == 0 {", after: "if len(there) >= 0 {",
		},
		{
			name: "admit: a body of any length is read", in: in, file: "review.go",
			before: "http.MaxBytesReader(w, r.Body, maxBody)", after: "r.Body",
		},
		{
			name: "admit: a review of another version is answered", in: in, file: "review.go",
			before: "asked.APIVersion != \"admission.k8s.io/v1\" || ", after: "",
		},
		{
			name: "admit: a failure of the PVs' webhook refuses the write", in: in, file: "webhooks.go",
			before: "FailurePolicy: ptr.To(admissionv1.Ignore), ReinvocationPolicy", after: "FailurePolicy: ptr.To(admissionv1.Fail), ReinvocationPolicy",
		},
		{
			name: "admit: a failure of the pods' webhook refuses the write", in: in, file: "webhooks.go",
			before: "FailurePolicy: ptr.To(admissionv1.Ignore), SideEffects", after: "FailurePolicy: ptr.To(admissionv1.Fail), SideEffects",
		},
		{
			name: "admit: the webhooks are waited for as long as they like", in: in, file: "webhooks.go",
			before: "const timeoutSeconds = 4", after: "const timeoutSeconds = 30",
		},
		{
			name: "admit: a failure of the policy refuses the write", in: in, file: "policy.go",
			before: "FailurePolicy: ptr.To(admissionv1.Ignore),", after: "FailurePolicy: ptr.To(admissionv1.Fail),",
		},
		{
			name: "admit: a list that cannot be read is empty", in: in, file: "policy.go",
			before: "return nil, fmt.Errorf(\"%w: %w\", errForeign, err)", after: "_ = fmt.Sprint(err)\n\t\t\treturn nil, nil",
		},
		{
			name: "admit: conditions without a list are an empty list", in: in, file: "policy.go",
			before: "\treturn nil, errForeign\n}\n\n// Policy", after: "\treturn nil, nil\n}\n\n// Policy",
		},
		{
			name: "admit: a release leaves the drivers listed", in: in, file: "unlist.go",
			before: "if !all[0].lists(out.Drivers) {", after: "if true || !all[0].lists(out.Drivers) {",
		},
		{
			name: "admit: a release removes every driver from a list", in: in, file: "unlist.go",
			before: "return slices.Contains(drivers, d) })\n\t\treturn conditions", after: "return len(drivers) > 0 })\n\t\treturn conditions",
		},
		{
			name: "admit: a list is written over whatever it has become", in: in, file: "unlist.go",
			before: "\"uid\": l.UID, \"resourceVersion\": l.ResourceVersion,", after: "\"uid\": l.UID,",
		},
		{
			name: "admit: a release waits for ever for a list", in: in, file: "unlist.go",
			before: "return context.WithTimeout(ctx, c.timeout)", after: "return context.WithTimeout(ctx, 10*callTimeout)",
		},
		{
			name: "admit: one try without finalizers shows that a list is in force", in: in, file: "await.go",
			before: "case pv == nil, !back && now.Sub(quiet) >= settle:", after: "case pv == nil, !back && now.Sub(quiet) >= 0:",
		},
		{
			name: "admit: a finalizer that comes back for ever is no error", in: in, file: "await.go",
			before: "case back && now.Sub(began) >= learnWithin:\n\t\t\treturn fmt.Errorf", after: "case back && now.Sub(began) >= learnWithin:\n\t\t\treturn nil\n\t\tcase back && now.Sub(began) >= 2*learnWithin:\n\t\t\treturn fmt.Errorf",
		},
		{
			name: "admit: what shows whether a list is in force changes a PV", in: in, file: "await.go",
			before: "metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}", after: "metav1.PatchOptions{}",
		},
		{
			name: "admit: a release does not go on with what one before began", in: in, file: "unlist.go",
			before: "strings.FieldsFuncSeq(l.Annotations[releasedAnnotation],", after: "strings.FieldsFuncSeq(\"\",",
		},
		{
			name: "admit: a release does not note what it began", in: in, file: "unlist.go",
			before: "releasedAnnotation: strings.Join(drivers, \",\")}", after: "releasedAnnotation: \"\"}",
		},
		{
			name: "admit: a list that changed meanwhile ends a release", in: in, file: "unlist.go",
			before: "case apierrors.IsConflict(err): //", after: "case apierrors.IsConflict(err) && false: //",
		},
		{
			name: "admit: the finalizers of every driver are released", in: in, file: "release.go",
			before: "if !slices.ContainsFunc(driversOf(pv),", after: "if false && !slices.ContainsFunc(driversOf(pv),",
		},
		{
			name: "admit: a finalizer that comes back counts as released", in: in, file: "release.go",
			before: "if slices.Contains(left, pv.Name) {", after: "if false {",
		},
		{
			name: "admit: one look without finalizers ends a release", in: in, file: "release.go",
			before: "quiet := len(again) == 0 && len(left) == 0", after: "quiet := len(again) == 0",
		},
		{
			name: "admit: a release ends only when no finalizer comes back", in: in, file: "release.go",
			before: "if quiet || !r.clock.Now().Before(until) {", after: "if quiet || r.clock.Since(until) > 9*learnWithin {",
		},
		{
			name: "admit: a release writes whatever became of the PV", in: in, file: "release.go",
			before: "UID: pv.UID, ResourceVersion: pv.ResourceVersion, Drop: drop,", after: "UID: pv.UID, Drop: drop,",
		},
		{
			name: "admit: a PV that changed ends a release", in: in, file: "release.go",
			before: "if errors.Is(err, kube.ErrGone) || errors.Is(err, kube.ErrChanged) {", after: "if errors.Is(err, kube.ErrGone) {",
		},
		{
			name: "admit: a PV that is gone ends a release", in: in, file: "release.go",
			before: "if errors.Is(err, kube.ErrGone) || errors.Is(err, kube.ErrChanged) {", after: "if errors.Is(err, kube.ErrChanged) {",
		},
		{
			name: "admit: volumes that stay anyway are said to be abandoned", in: in, file: "release.go",
			before: "pv.DeletionTimestamp != nil && pv.Spec.PersistentVolumeReclaimPolicy == v1.PersistentVolumeReclaimDelete && pv.Spec.ClaimRef != nil", after: "pv.DeletionTimestamp != nil",
		},
		{
			name: "admit: a release waits for ever for the API server", in: in, file: "release.go",
			before: "return context.WithTimeout(ctx, r.timeout)", after: "return context.WithTimeout(ctx, 10*callTimeout)",
		},
		{
			name: "admit: the policy protects a PV without claim", in: in, file: "policy.go", live: "TestThePolicy",
			before: "`has(object.spec.claimRef) && has(object.spec.claimRef.uid) && object.spec.claimRef.uid != \"\"`", after: "`true`",
		},
		{
			name: "admit: the policy protects whatever the reclaim policy is", in: in, file: "policy.go", live: "TestThePolicy",
			before: "`has(object.spec.persistentVolumeReclaimPolicy) && object.spec.persistentVolumeReclaimPolicy == \"Delete\"`", after: "`true`",
		},
		{
			name: "admit: the policy gives a PV that is being deleted a finalizer", in: in, file: "policy.go", live: "TestThePolicy",
			before: "`!has(object.metadata.deletionTimestamp)`", after: "`true`",
		},
		{
			name: "admit: the policy protects a twin", in: in, file: "policy.go", live: "TestThePolicy",
			before: "Expression: `!has(object.metadata.labels) || !(\"` + twinLabel + `\" in object.metadata.labels)`", after: "Expression: `\"` + twinLabel + `\" != \"\"`",
		},
		{
			name: "admit: a driver's name is no string to the policy", in: in, file: "policy.go", live: "TestNamesOfDrivers",
			before: "list, err := json.MarshalIndent(drivers, \"\", \"  \")", after: "list, err := []byte(\"[\\\"\"+strings.Join(drivers, \"\\\", \\\"\")+\"\\\"]\"), error(nil)",
		},
		{
			name: "admit: the policy has a parameter", in: in, file: "policy.go",
			before: "\t\t\tMatchConditions: conditions(role, drivers),\n\t\t\tMutations", after: "\t\t\tMatchConditions: conditions(role, drivers), ParamKind: &admissionv1.ParamKind{APIVersion: \"v1\", Kind: \"ConfigMap\"},\n\t\t\tMutations",
		},
		{
			name: "admit: the policy knows who made a PV by its volume alone", in: in, file: "policy.go", live: "TestThePolicy",
			before: "  ? [object.metadata.annotations[\"` + annProvisionedBy + `\"]]\n  : has", after: "  ? [] : has",
		},

		{
			name: "certs: a Secret that was not read counts as none", in: certs, file: "decide.go",
			before: "case !s.Known || len(s.Names) == 0:", after: "case len(s.Names) == 0:",
		},
		{
			name: "certs: a certificate that is not trusted is presented", in: certs, file: "decide.go",
			before: "case !s.Trusted:\n\t\treturn Trust\n", after: "case !s.Trusted && !next:\n\t\treturn Trust\n",
		},
		{
			name: "certs: a certificate is presented before all have learned to trust it", in: certs, file: "decide.go",
			before: "case next && s.settled(now):", after: "case next:",
		},
		{
			name: "certs: trust of which nobody knows since when counts", in: certs, file: "decide.go",
			before: "return s.Trusted && !s.Since.IsZero() && ", after: "return s.Trusted && ",
		},
		{
			name: "certs: a next certificate of no use is presented", in: certs, file: "decide.go",
			before: "case s.State.Next != nil && !next:\n\t\treturn MakeNext\n", after: "case s.State.Next != nil && !next:\n\t\treturn Promote\n",
		},
		{
			name: "certs: trust ends before what it signed has", in: certs, file: "decide.go",
			before: "return func(a Authority) bool { return !now.Before(a.NotAfter) }", after: "return func(Authority) bool { return true }",
		},
		{
			name: "certs: trust in the certificate before ends at once", in: certs, file: "decide.go",
			before: "return State{Current: s.Next, Old: s.old()}", after: "return State{Current: s.Next, Old: s.Old}",
		},
		{
			name: "certs: a certificate is never exchanged", in: certs, file: "decide.go",
			before: "case due:\n\t\treturn MakeNext\n", after: "case due && !current:\n\t\treturn MakeNext\n",
		},
		{
			name: "certs: what is presented is thrown away where the Secret is", in: certs, file: "keeper.go",
			before: "if p := k.current.Load(); a == MakeFirst && p.usable", after: "if p := k.current.Load(); a == Rest && p.usable",
		},
		{
			name: "certs: a change of the Secret counts as known at once", in: certs, file: "keeper.go",
			before: "} else if k.version != seen.version {", after: "} else if k.since.IsZero() {",
		},
		{
			name: "certs: a break of the trust does not count", in: certs, file: "keeper.go",
			before: "\t\tk.version, k.since = \"\", time.Time{}\n", after: "\t\tk.version = \"\" + k.version\n",
		},
		{
			name: "certs: one webhook that trusts is enough", in: certs, file: "keeper.go",
			before: "s.Trusted = len(untrusting(seen.hooks, s.State.bundle())) == 0", after: "s.Trusted = len(untrusting(seen.hooks, s.State.bundle())) < 2",
		},
		{
			name: "certs: a certificate for other names is presented", in: certs, file: "state.go",
			before: "if !slices.Contains(p.Names, name) {", after: "if false && !slices.Contains(p.Names, name) {",
		},
		{
			name: "certs: a key of another certificate is stored", in: certs, file: "state.go",
			before: "if !authority.IsCA || leaf.CheckSignatureFrom(authority) != nil {", after: "if !authority.IsCA {",
		},
		{
			name: "certs: a Secret is written over whatever it has become", in: certs, file: "cluster.go",
			before: "map[string]any{\"metadata\": map[string]string{\"resourceVersion\": version}, \"data\": all}", after: "map[string]any{\"data\": all}",
		},
		{
			name: "certs: a webhook configuration is written over whatever it has become", in: certs, file: "cluster.go",
			before: "map[string]any{\"metadata\": map[string]string{\"resourceVersion\": h.version}, \"webhooks\": all}", after: "map[string]any{\"webhooks\": all}",
		},
	}
	for i := range all {
		all[i].because = admission
	}
	return all
}
