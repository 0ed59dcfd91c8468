"""The pretended Amazon: moto, but with as many instances as are asked for, not as few as may do,
and each of them with its profile, not only the first."""

from __future__ import annotations

from typing import Any

from moto.ec2.responses.instances import InstanceResponse
from moto.server import main

asked, launched = InstanceResponse._get_param, InstanceResponse.run_instances


def as_many_as_asked(self: Any, name: str, *rest: Any, **options: Any) -> Any:
    return asked(self, "MaxCount" if name == "MinCount" else name, *rest, **options)


def all_with_their_profile(self: Any) -> Any:
    answer = launched(self)
    if profile := self._get_param("IamInstanceProfile.Name"):
        for instance in answer.result.instances[1:]:
            self.ec2_backend.associate_iam_instance_profile(
                instance_id=instance.id, iam_instance_profile_name=profile
            )
    return answer


if __name__ == "__main__":
    InstanceResponse._get_param = as_many_as_asked
    InstanceResponse.run_instances = all_with_their_profile
    main()
