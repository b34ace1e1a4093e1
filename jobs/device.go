package jobs

import (
	"slices"
	"strings"

	"github.com/batchmill/batchmill/infer/cpu"
)

// activationNames are the values of Spec.Activations; see cpu.Activations.
var activationNames = []string{"auto", string(cpu.ActivationsF32), string(cpu.ActivationsInt16), string(cpu.ActivationsInt8)}

// isaNames are the values of Spec.ISA on any machine; cpu.ISAs are those that this one has.
var isaNames = []string{"auto", "amx", "avx512", "avx2", "portable"}

// check refuses wishes that no machine, or not this one, fulfils. Empty ones leave the choice to us.
func (o *deviceOptions) check() error {
	switch {
	case o.threads < 0 || o.threads > cpu.MaxThreads:
		return Errorf(Usage, "0 is one for each core", "--threads must be 0 to %d, not %d", cpu.MaxThreads, o.threads)
	case o.activations != "" && !slices.Contains(activationNames, o.activations):
		return Errorf(Usage, "use one of "+strings.Join(activationNames, ", "), "unknown --activations %q", o.activations)
	case o.isa == "" || o.isa == "auto" || slices.Contains(cpu.ISAs(), o.isa):
		return nil
	case !slices.Contains(isaNames, o.isa):
		return Errorf(Usage, "use one of "+strings.Join(isaNames, ", "), "unknown --isa %q", o.isa)
	}
	return Errorf(Config, "use auto, or one of "+strings.Join(cpu.ISAs(), ", "), "--isa %s: this machine does not have these instructions", o.isa)
}
