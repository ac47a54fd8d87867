#include "rules/syndromes.h"

#include <array>

namespace tensortap {
namespace {

using Names = std::string_view;

constexpr std::array<Names, 3> kPrecisionSigns = {"LowPrecisionRange", "LossScaleCollapse",
                                                  "LatentOverflow"};
constexpr std::array<Names, 3> kNonFinite = {"NonFiniteOrigin", "ExplodingTensor", "LossSpike"};

constexpr std::array<Names, 6> kDivergenceSigns = {
    "GradNormSpike",        "UpdateToWeightRatioPerLayer", "LossSpike",
    "AttentionLogitGrowth", "ResidualStreamGrowth",        "AdamSecondMoment"};
constexpr std::array<Names, 4> kDivergenceConsequences = {"ExplodingTensor", "NonFiniteOrigin",
                                                          "LossNotDecreasing", "TensorVariance"};

constexpr std::array<Names, 3> kSaturationSigns = {"SaturatedActivation",
                                                   "PoorWeightInitialization", "VanishingGradient"};
constexpr std::array<Names, 5> kNoLearning = {
    "UnchangedTensor", "LossNotDecreasing", "WeightUpdateRatio", "NoGradientFlow", "Overtraining"};

constexpr std::array<Names, 2> kDeadUnitSigns = {"DeadRelu", "DormantUnits"};
constexpr std::array<Names, 4> kDeadUnitConsequences = {"VanishingGradient", "AllZero",
                                                        "LossNotDecreasing", "UnchangedTensor"};

constexpr std::array<Names, 3> kNoGradientSigns = {"NoGradientFlow", "UnchangedTensor",
                                                   "WeightUpdateRatio"};
constexpr std::array<Names, 3> kNoGradientConsequences = {"VanishingGradient", "LossNotDecreasing",
                                                          "AllZero"};

constexpr std::array<Names, 7> kDataSigns = {
    "RepeatedBatches",   "CheckInputImages", "ClassImbalance",        "NLPSequenceRatio",
    "SupervisionMasked", "Confusion",        "GradAccumNormalisation"};
constexpr std::array<Names, 4> kDataConsequences = {"LossSpike", "LossNotDecreasing", "Overfit",
                                                    "GradNormSpike"};

constexpr std::array<Names, 3> kOverfitSigns = {"Overfit", "TreeDepth",
                                                "FeatureImportanceOverweight"};
constexpr std::array<Names, 2> kOverfitConsequences = {"Overtraining", "LossNotDecreasing"};

constexpr std::array<Names, 3> kPlateauSigns = {"Overtraining", "LossNotDecreasing",
                                                "UnchangedTensor"};

constexpr std::array<Names, 6> kPolicySigns = {"PolicyEntropyCollapse", "PolicyKLBlowUp",
                                               "ZeroAdvantageGroups",   "RolloutTrainerMismatch",
                                               "ValueFunctionFailure",  "CompletionTruncation"};
constexpr std::array<Names, 2> kPolicyConsequences = {"LossSpike", "GradNormSpike"};

constexpr std::array<Names, 6> kHungryGpuSigns = {"CPUBottleneck", "IOBottleneck",
                                                  "Dataloader",    "LowGPUUtilization",
                                                  "BatchSize",     "LoadBalancing"};
constexpr std::array<Names, 2> kHungryGpuConsequences = {"StepOutlier", "ThroughputRegression"};

constexpr std::array<Syndrome, 10> kSyndromes = {{
    {"Numbers left the range of the low-precision format",
     "Values became too large or too small for float16 (or float8): overflow made them infinite, "
     "or "
     "underflow made gradients zero, and the loss scaler lost its hold.",
     "Train in bfloat16, keep the layers that overflow in float32, or lower the learning rate and "
     "start with a smaller loss scale.",
     kPrecisionSigns, kNonFinite},
    {"The training diverges",
     "Updates became too large for the weights: gradient norms and activations grew, and the loss "
     "followed.",
     "Go back to a checkpoint from before the first sign; lower the learning rate or warm up "
     "longer, clip gradients, and look at the batch of that step.",
     kDivergenceSigns, kDivergenceConsequences},
    {"Saturated layers let the gradients vanish",
     "Weights that start badly push activations into the flat ends of sigmoid or tanh; no gradient "
     "comes back through them, so the layers below do not learn.",
     "Initialise to the activation (Xavier for tanh and sigmoid, He for ReLU), or use another "
     "activation, normalisation or residual connections.",
     kSaturationSigns, kNoLearning},
    {"Units have died",
     "Many units give zero for every input: they get no gradient any more and do not come back.",
     "Lower the learning rate, use LeakyReLU or GELU, or a smaller negative bias at the start.",
     kDeadUnitSigns, kDeadUnitConsequences},
    {"Parameters do not learn at all",
     "No gradient reaches them, or the optimizer does not hold them.",
     "Check requires_grad, detach() and no_grad(), and that the optimizer was given the parameters "
     "that the model uses.",
     kNoGradientSigns, kNoGradientConsequences},
    {"The data is at fault",
     "What is fed in is repeated, masked, unbalanced or not normalised; the loss shows it later.",
     "Look at the batches of the steps that are named before you change the model.", kDataSigns,
     kDataConsequences},
    {"The model overfits",
     "It goes on getting better on the training data while it gets worse, or no better, on data "
     "that it has not seen.",
     "Stop here, or add data, augmentation, dropout or weight decay, or make the model smaller.",
     kOverfitSigns, kOverfitConsequences},
    {"The policy collapses",
     "The policy moved too far in too few updates, or no longer explores: advantages, entropy or "
     "divergence from the reference say so.",
     "Lower the learning rate or the number of epochs a batch, raise the entropy bonus or the KL "
     "penalty, and look at the rewards of the groups.",
     kPolicySigns, kPolicyConsequences},
    {"The GPU waits",
     "The accelerator is idle for much of the step, since what feeds it is slower.",
     "Give the data loader more workers, move augmentation off the critical path, cache the data, "
     "or enlarge the batch.",
     kHungryGpuSigns, kHungryGpuConsequences},
    {"The loss no longer improves",
     "Many steps have brought no better loss: the model has converged, or the learning rate no "
     "longer fits.",
     "If the loss is as low as it should be, stop. Otherwise look at the learning rate and at the "
     "gradients of these steps.",
     kPlateauSigns,
     {}},
}};

}  // namespace

std::span<const Syndrome> syndromes() { return kSyndromes; }

}  // namespace tensortap
