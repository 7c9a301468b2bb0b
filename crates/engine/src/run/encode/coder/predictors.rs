//! How the values of a run are stored: as they are, or as how they differ from those before them. Chosen by trying each way, on
//! the first ones (the host tries a sample of each, the device all of it) and, as data change, now and then.

use super::runs::Run;
use hashbrown::HashMap;
use tierflow_codec::Planes;
use tierflow_sync::model::Mutex;

/// Runs of one kind after which it is found anew, at most: twice as many as the last time, to begin with. A long run is encoded, and counted, part by part on the host.
const ANEW: u64 = 64;

/// The predictors found, by the kind of the run and its type.
#[derive(Debug, Default)]
pub(super) struct Predictors(Mutex<HashMap<(usize, u8), Chosen>>);

#[derive(Debug, Clone, Copy)]
struct Chosen {
    planes: Planes,
    uses: u64,
}

impl Predictors {
    /// The one for a run. `find` tries them.
    pub(super) fn of<E>(
        &self,
        run: &Run,
        find: impl FnOnce() -> Result<Planes, E>,
    ) -> Result<Planes, E> {
        let key = (run.kind, run.value as u8);
        if let Some(found) = self.0.lock().get_mut(&key) {
            found.uses += 1;
            let uses = found.uses;
            if !(uses.is_power_of_two() && uses < ANEW || uses.is_multiple_of(ANEW)) {
                return Ok(found.planes);
            }
        }
        let planes = find()?;
        let mut known = self.0.lock();
        let found = known.entry(key).or_insert(Chosen { planes, uses: 0 });
        found.planes = planes;
        Ok(planes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tierflow_codec::{Element as Value, Predictor};

    #[test]
    fn it_is_found_anew_less_and_less_often() {
        let predictors = Predictors::default();
        let run = Run {
            range: 0..8,
            value: Value::F32,
            bound: None,
            kind: 0,
        };
        let mut tried = Vec::new();
        for n in 0..200 {
            let found = predictors.of(&run, || {
                tried.push(n);
                Ok::<_, ()>(Planes::with(Predictor::Previous))
            });
            assert_eq!(found, Ok(Planes::with(Predictor::Previous)));
        }
        assert_eq!(tried, [0, 1, 2, 4, 8, 16, 32, 64, 128, 192]);
    }
}
